"""Docker's own logins: its configuration file and its credential helpers."""

from __future__ import annotations

import base64
import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfleet.errors import PrerequisiteMissing
from rayfleet.files import write_atomically

if TYPE_CHECKING:
    from docker.auth import AuthConfig

# What Docker calls Docker Hub in its configuration, and the hosts that are it.
HUB = "docker.io"
HUB_KEY = "https://index.docker.io/v1/"
HUB_HOSTS = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})
PRIVATE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerLogin:
    """A login that Docker has; ``helper`` is who gave it, "" for the configuration file."""

    username: str
    password: str = field(repr=False)
    helper: str = ""


def docker_login(host: str) -> DockerLogin | None:
    """The user name and password that Docker has for ``host``; None if it has none.

    Raises:
        PrerequisiteMissing: a credential helper should be asked and failed, or Docker's
            configuration is damaged.
    """
    from docker.errors import DockerException

    config = _load()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a helper that is not installed: an error follows
            found = config.resolve_authconfig(HUB if host in HUB_HOSTS else host) or {}
    except DockerException as error:
        raise PrerequisiteMissing(
            f"Docker's credential helper for {host} failed",
            why=type(error.__cause__ or error).__name__,
            next_step=f"docker login {host}",
        ) from error
    # Helpers answer with capital letters, the configuration file with small ones.
    entry = {key.lower(): str(value) for key, value in found.items()}
    if not entry.get("username") or not entry.get("password"):
        return None
    helper = helper_of(host) if "Username" in found else ""
    return DockerLogin(username=entry["username"], password=entry["password"], helper=helper)


def helper_of(host: str) -> str:
    """The credential helper that Docker asks for ``host``, without "docker-credential-"; or ""."""
    return str(_load().get_credential_store(HUB if host in HUB_HOSTS else host) or "")


def config_file() -> Path:
    """Docker's configuration file, which need not exist."""
    from docker.utils.config import config_path_from_environment, find_config_file, home_dir

    found = find_config_file() or config_path_from_environment()
    return Path(str(found)) if found else Path(home_dir()) / ".docker" / "config.json"


def has_helper(name: str) -> bool:
    """True if the credential helper ``name`` is installed."""
    return shutil.which(f"docker-credential-{name}") is not None


def name_helper(host: str, helper: str) -> Path:
    """Have Docker ask ``helper`` for ``host``; returns the file that says so. Holds no secret.

    Raises:
        PrerequisiteMissing: the file is damaged or cannot be written.
    """
    path, known = _read()
    helpers = {**_section(known, "credHelpers"), host: helper}
    _write(path, {**known, "credHelpers": helpers})
    return path


def store_in_helper(host: str, username: str, password: str) -> str:
    """Hand a login to the credential helper of ``host``, on its stdin; returns its name.

    Raises:
        PrerequisiteMissing: there is none, or it failed.
    """
    from docker.credentials import Store
    from docker.credentials.errors import StoreError

    helper = helper_of(host)
    if not helper or not has_helper(helper):
        raise PrerequisiteMissing(
            f"no credential helper to keep the password of {host}",
            why=f"{config_file()} names none" if not helper else f"{helper} is not installed",
            next_step="name one as credsStore there (docker-credential-pass, -secretservice …)",
        )
    try:
        Store(helper).store(_key(host), username, password)  # type: ignore[no-untyped-call]
    except StoreError as error:
        # Not its own text, which may repeat what it was given.
        raise PrerequisiteMissing(
            f"docker-credential-{helper} does not keep the password of {host}",
            why=type(error).__name__,
            next_step=f"docker login {host}",
        ) from None
    return helper


def store_in_plain_text(host: str, username: str, password: str) -> Path:
    """Write a login into Docker's configuration file, readable to its owner; returns the file.

    Raises:
        PrerequisiteMissing: the file is damaged or cannot be written.
    """
    path, known = _read()
    encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
    auths = {**_section(known, "auths"), _key(host): {"auth": encoded}}
    _write(path, {**known, "auths": auths})
    return path


def _key(host: str) -> str:
    return HUB_KEY if host in HUB_HOSTS else host


def _load() -> AuthConfig:
    from docker.auth import load_config
    from docker.errors import InvalidConfigFile

    try:
        return load_config()
    except (InvalidConfigFile, ValueError, TypeError, AttributeError, KeyError) as error:
        # Not its own text, which may quote the file.
        raise _damaged(config_file(), type(error).__name__) from None


def _read() -> tuple[Path, dict[str, Any]]:
    path = config_file()
    try:
        known = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise _damaged(path, type(error).__name__) from None
    if not isinstance(known, dict):
        raise _damaged(path, "it holds no JSON object")
    return path, known


def _section(known: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = known.get(name) or {}
    return dict(found) if isinstance(found, dict) else {}


def _write(path: Path, value: Mapping[str, Any]) -> None:
    # A file that is a link, as in many a home, stays one.
    write_atomically(path.resolve(), json.dumps(value, indent="\t") + "\n", mode=PRIVATE)


def _damaged(path: Path, why: str) -> PrerequisiteMissing:
    return PrerequisiteMissing(
        f"cannot read Docker's configuration {path}", why=why, next_step=f"mend or move {path}"
    )
