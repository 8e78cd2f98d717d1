"""Files of this machine that a config names: what Ray copies, and keys."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from rayfleet.fleet.lint.config import NOT_LAUNCHED, Config
from rayfleet.fleet.lint.finding import Finding, printable

KEYS = ("ssh_private_key", "ssh_public_key")
# Ray makes its own there, whatever the file says.
OWN_KEYS = frozenset({"vsphere"})
WITHOUT_SSH = NOT_LAUNCHED | {"external"}


def check_mounts(config: Config) -> Iterator[Finding]:
    """What Ray copies to every node."""
    for remote, local in config.mapping("file_mounts").items():
        place = ("file_mounts", remote)
        if not isinstance(local, str):
            yield config.error("wrong-type", place, "is no path; write it in quotes")
            continue
        found = look_at(local)
        if found is None:
            text = f"there is no {printable(local)} on this machine, and ray up stops there"
            yield config.warning("file-missing", place, text)
        elif config.in_docker and stat.S_ISREG(found):
            text = "a single file: the container keeps the old one when it changes; mount a folder"
            yield config.warning("single-file-mount", place, text)


def check_keys(config: Config) -> Iterator[Finding]:
    """SSH keys; a private one that others may read is refused by ssh."""
    for key in KEYS if config.provider not in OWN_KEYS else ():
        path = config.string("auth", key)
        found = look_at(path) if path else None
        if path and found is None:
            text = f"there is no {printable(path)} on this machine, and ray up stops there"
            yield config.warning("ssh-key-missing", ("auth", key), text)
        elif found is not None and key == KEYS[0] and found & 0o077:
            text = f"others may read {printable(path)}, so ssh refuses it; run chmod 600 on it"
            yield config.warning("ssh-key-readable", ("auth", key), text)


def check_user(config: Config) -> Iterator[Finding]:
    """The schema speaks of a default, which nothing fills in."""
    given = config.mapping("auth")
    auth = given if "auth" in config.document.value else config.defaults.get("auth")
    by_ssh = config.provider and config.provider not in WITHOUT_SSH
    if by_ssh and isinstance(auth, dict) and not auth.get("ssh_user"):
        text = "missing, and Ray has no default for it; write ssh_user: ubuntu, say"
        yield config.error("ssh-user", ("auth", "ssh_user"), text)


def look_at(path: str) -> int | None:
    """The mode of a file of this machine as Ray would find it, or None: there is none."""
    try:
        return Path(path).expanduser().stat().st_mode
    except (OSError, ValueError, RuntimeError):
        return None
