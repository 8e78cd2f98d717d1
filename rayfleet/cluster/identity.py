"""With which keys we log in on a head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import PrerequisiteMissing, UsageError

if TYPE_CHECKING:
    from paramiko import PKey


def credentials(private_key: Path | None, identity_files: Sequence[str]) -> dict[str, object]:
    """What ``paramiko.SSHClient.connect`` shall log in with.

    A given ``private_key`` is the only one that is offered: servers count every wrong key as a
    failed login. Without one the operator's agent, default keys and those of ssh_config
    (``identity_files``) are tried.

    Raises:
        PrerequisiteMissing: the private key does not exist.
        UsageError: it cannot be read, or has a passphrase.
    """
    if private_key is not None:
        return {"pkey": _loaded(private_key), "look_for_keys": False, "allow_agent": False}
    named = [Path(name).expanduser() for name in identity_files]
    return {"key_filename": [str(path) for path in named if path.exists()]}


def _loaded(path: Path) -> PKey:
    from paramiko import PKey

    try:
        return PKey.from_path(path.expanduser())
    except FileNotFoundError as error:
        raise PrerequisiteMissing(f"no private key {path}", next_step="invoke doctor") from error
    except Exception as error:  # paramiko and cryptography share no base class here
        raise UsageError(
            f"cannot use the private key {path}",
            why=str(error) or type(error).__name__,
            next_step="if it has a passphrase: ssh-add it, and empty ssh.private_key in the fleet",
        ) from error
