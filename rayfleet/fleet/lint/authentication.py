"""Ray's tokens: the mode on head and workers, the token itself, and whether this Ray knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from rayfleet.fleet.document import Trail
from rayfleet.fleet.lint.config import ROLES, Config, Text
from rayfleet.fleet.lint.docker import joined
from rayfleet.fleet.lint.finding import Finding, printable

_MODE = re.compile(r"\bRAY_AUTH_MODE=['\"]?([^\s'\";&|]*)")
_TOKEN_PATH = re.compile(r"\bRAY_AUTH_TOKEN_PATH=['\"]?([^\s'\";&|]+)")
_VERSION = re.compile(
    r"(?:\brayproject/ray(?:-[a-z]+)?:|\bray(?:\[[\w,-]*\])?==|\bray-)(\d+)\.(\d+)\.\w+"
)
_MAKES_A_TOKEN = re.compile(r"\bget-auth-token\b[^;&|]{0,100}--generate\b")
TOKENS_SINCE = (2, 52)
_MODES = ("token", "disabled")


def check_auth_mode(config: Config) -> Iterator[Finding]:
    """Ray 2.60 guesses the mode from files that lie about, differently on head and worker."""
    found = {role: _modes(config, role) for role in ROLES}
    for role in ROLES:
        place, mode = found[role]
        if mode is not None and "$" not in mode and mode.lower() not in _MODES:
            text = f"RAY_AUTH_MODE={printable(mode)} is none of Ray's, which then asks nobody for a"
            text += " token; write token or disabled"
            yield config.error("auth-mode-unknown", place, text)
        if mode is None and config.get(f"{role}_start_ray_commands"):
            text = "RAY_AUTH_MODE is not set; say token or disabled"
            if _sets_on_host(config):
                text += " (initialization_commands set it on the host, not in the container)"
            yield config.warning("auth-mode-unset", (f"{role}_start_ray_commands",), text)
    (_, head), (place, worker) = found["head"], found["worker"]
    if head and worker and {head.lower(), worker.lower()} == set(_MODES):
        text = f"RAY_AUTH_MODE={worker} here and {head} on the head, so no worker can join"
        yield config.error("auth-mode-differs", place, f"{text}; write the same")


def check_token(config: Config) -> Iterator[Finding]:
    """In the mode token every node needs the token before Ray starts."""
    texts = list(config.texts())
    for role in ROLES:
        place, mode = _modes(config, role)
        told = any(_brings_a_token(trail, text) for trail, text in texts)
        if (mode or "").lower() == "token" and not told:
            what = "RAY_AUTH_MODE=token, and nothing brings a token; lay ~/.ray/auth_token down"
            what += " before Ray starts, or set RAY_AUTH_TOKEN_PATH"
            yield config.error("auth-token-missing", place, what)
            return
    for place, text in texts if config.provider != "external" else ():
        for path in _TOKEN_PATH.findall(text):
            if "$" not in path and not _put_there(config, path):
                what = f"nothing in this file lays down {printable(path)}, which the token is read"
                yield config.warning("auth-token-missing", place, f"{what} from; add the command")


def check_one_token(config: Config) -> Iterator[Finding]:
    """The token is one and the same on every node."""
    for place, text in config.commands(
        "initialization_commands", "setup_commands", "worker_setup_commands"
    ):
        if _MAKES_A_TOKEN.search(text):
            what = "makes another token on every node, so no worker can join; make it once, here,"
            yield config.error("auth-token-of-each", place, f"{what} and mount it")


def check_ray_knows_tokens(config: Config) -> Iterator[Finding]:
    """Before 2.52 Ray takes no notice of the mode, and is open."""
    modes = {(_modes(config, role)[1] or "").lower() for role in ROLES}
    if "token" not in modes:
        return
    for place, text in [*config.images(), *config.commands()]:
        for major, minor in _VERSION.findall(text):
            version = (int(major[:4]), int(minor[:4]))
            if version < TOKENS_SINCE:
                what = f"Ray {version[0]}.{version[1]} takes no notice of RAY_AUTH_MODE=token and"
                what += " is open to all; use Ray 2.52 or later"
                yield config.error("auth-ray-too-old", place, what)


def _modes(config: Config, role: str) -> tuple[Trail, str | None]:
    """Where the mode of a role is set, and to what: Ray's own command counts before all else."""
    sources: list[list[Text]] = [list(config.commands(f"{role}_start_ray_commands"))]
    if config.in_docker:
        sources.append(list(joined(config.options(role))))
    setup = [*config.commands("setup_commands", f"{role}_setup_commands")]
    if not config.in_docker:
        setup += config.commands("initialization_commands")
    sources.append([(place, text) for place, text in setup if "rc" in text or "profile" in text])
    for texts in sources:
        found = [(place, mode) for place, text in texts for mode in _MODE.findall(text)]
        if found:
            return found[-1]
    if any("--env-file" in text for _, text in config.options(role)):
        return ("docker",), "$of-the-file"
    return (f"{role}_start_ray_commands",), None


def _sets_on_host(config: Config) -> bool:
    texts = (text for _, text in config.commands("initialization_commands"))
    return config.in_docker and any(_MODE.search(text) for text in texts)


def _brings_a_token(trail: Trail, text: str) -> bool:
    keys = " ".join(map(str, trail))
    signs = ("auth_token", "RAY_AUTH_TOKEN", "--env-file", "auth-token")
    return any(sign in text or sign in keys for sign in signs)


def _put_there(config: Config, path: str) -> bool:
    """Whether a command, a mount or a volume names the file, or a folder that it lies in."""
    wanted = PurePosixPath(path)
    folders = [str(one) for one in wanted.parents if str(one) not in ("/", ".", "~")]
    for trail, text in config.texts():
        told = _TOKEN_PATH.sub("", text)
        if f"/{wanted.name}" in told:
            return True
        if any(str(key) in folders or str(key) == path for key in trail):
            return True
        if trail[:1] == ("docker",) and any(f":{one}" in told for one in folders):
            return True
    return False
