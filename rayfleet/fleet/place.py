"""Where the sandbox is: what it wrote down when it came up."""

from __future__ import annotations

from pathlib import Path

from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.model import SandboxPlace


def read_place(state: Path) -> SandboxPlace | None:
    """The sandbox of this checkout, or None if it is not up.

    Raises:
        PrerequisiteMissing: ``<state>/sandbox/endpoints.json`` is not what the sandbox writes.
    """
    path = endpoints_file(state)
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _broken(path, error.strerror or str(error)) from error
    return _parse(path, text)


def endpoints_file(state: Path) -> Path:
    """The file that the sandbox writes when it comes up; the fields are SandboxPlace's."""
    return state / "sandbox" / "endpoints.json"


def _parse(path: Path, text: bytes) -> SandboxPlace:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(SandboxPlace).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise _broken(path, f"{where}: {first['msg']}".lstrip(": ")) from error


def _broken(path: Path, why: str) -> PrerequisiteMissing:
    return PrerequisiteMissing(
        f"the sandbox's {path} cannot be used", why=why, next_step="invoke sandbox.up"
    )
