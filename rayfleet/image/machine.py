"""What this machine's network asks of a build: its CA bundle, package index and proxy."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing
from rayfleet.process import run

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
BUNDLE_IN_BUILD = "/build-config/ca-certificates.crt"
PIP_SECONDS = 60.0

# The build arguments that every builder takes from its environment without being told:
# https://docs.docker.com/reference/dockerfile/#predefined-args
PROXY_VARIABLES = tuple(
    name
    for upper in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in (upper, upper.lower())
)

_SETTING = re.compile(r"^(?P<section>[\w:-]+)\.(?P<key>[\w-]+)=(?P<value>['\"].*['\"])$")
# Later sections win, as in pip itself.
_SECTIONS = ("global", "install", ":env:")


def ca_bundle(env: Mapping[str, str], *, pip_cert: str = "") -> Path | None:
    """The CA bundle that programs on this machine use.

    The environment's comes first, then ``pip_cert`` (pip's own setting), then the system's.
    """
    named = [env[name] for name in BUNDLE_VARIABLES if env.get(name)]
    paths = (*(Path(name) for name in (*named, pip_cert) if name), SYSTEM_BUNDLE)
    return next((path for path in paths if path.is_file() and os.access(path, os.R_OK)), None)


def proxy_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """The names, never the values, of the proxy variables that are set."""
    return tuple(name for name in PROXY_VARIABLES if env.get(name))


def read_pip_settings(env: Mapping[str, str]) -> dict[str, str]:
    """pip's settings on this machine, as ``pip config list`` merges files and environment.

    Values may hold passwords. On a machine without a working pip the environment counts.
    """
    lines: list[str] = []
    with suppress(PrerequisiteMissing):
        argv = ["pip", "config", "list"]
        if run(argv, timeout=PIP_SECONDS, env=env, on_line=lines.append).ok:
            return parse_pip_settings(lines)
    prefix = "PIP_"
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in env.items()
        if name.startswith(prefix)
    }


def parse_pip_settings(lines: Iterable[str]) -> dict[str, str]:
    """Settings by key out of the lines of ``pip config list``; other lines are ignored."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in lines:
        match = _SETTING.match(line.strip())
        if match and match["section"] in found:
            # pip prints each value as a Python literal.
            found[match["section"]][match["key"]] = str(ast.literal_eval(match["value"]))
    return {key: value for section in _SECTIONS for key, value in found[section].items()}


def build_environment(pip: Mapping[str, str], *, has_bundle: bool) -> dict[str, str]:
    """What pip and uv need inside a build to reach what they reach on this machine.

    Indexes and find-links on the machine's own disk do not exist in a build and are left out.
    """
    index = _remote(pip.get("index-url", ""))
    extra = _remote(pip.get("extra-index-url", ""))
    links = _remote(pip.get("find-links", ""))
    hosts = pip.get("trusted-host", "").split()
    timeout = pip.get("default-timeout", pip.get("timeout", ""))
    settings = {
        "PIP_INDEX_URL": " ".join(index),
        "UV_DEFAULT_INDEX": " ".join(index),
        "PIP_EXTRA_INDEX_URL": " ".join(extra),
        "UV_INDEX": " ".join(extra),
        # pip takes the best version of all its indexes; uv stops at the first that has any.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if extra else "",
        "PIP_FIND_LINKS": " ".join(links),
        "UV_FIND_LINKS": ",".join(links),
        "PIP_TRUSTED_HOST": " ".join(hosts),
        "UV_INSECURE_HOST": " ".join(hosts),
        "PIP_DEFAULT_TIMEOUT": timeout,
        "UV_HTTP_TIMEOUT": timeout,
        "PIP_CERT": BUNDLE_IN_BUILD if has_bundle else "",
        "SSL_CERT_FILE": BUNDLE_IN_BUILD if has_bundle else "",
    }
    return {name: value for name, value in settings.items() if value}


def shell_exports(settings: Mapping[str, str]) -> str:
    """A file for ``.`` of a POSIX shell that exports ``settings``."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())


def _remote(value: str) -> list[str]:
    return [part for part in value.split() if re.match(r"https?://", part)]
