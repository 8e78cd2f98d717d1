"""Docker Hub's login: two variables, of the environment or of the project's ``.env``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing

USERNAME = "DOCKERHUB_USERNAME"
PASSWORD = "DOCKERHUB_PASSWORD"  # noqa: S105 (a name)
OTHERS = 0o077

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>\w+)\s*=\s*(?P<value>.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLogin:
    """A login and where it stands; ``remark`` is what is wrong with that place, or ""."""

    username: str
    password: str = field(repr=False)
    where: str
    remark: str = ""


def hub_login(fleet_file: Path, environment: Mapping[str, str] | None = None) -> HubLogin | None:
    """The login of Docker Hub; None if neither place has both variables.

    ``.env`` lies beside the ``tasks.py`` above ``fleet_file``.

    Raises:
        PrerequisiteMissing: ``.env`` cannot be read.
    """
    known = os.environ if environment is None else environment
    if known.get(USERNAME) and known.get(PASSWORD):
        where = f"{USERNAME} of the environment"
        return HubLogin(username=known[USERNAME], password=known[PASSWORD], where=where)
    path = _env_file(fleet_file)
    if path is None:
        return None
    found = read_env(path)
    if not found.get(USERNAME) or not found.get(PASSWORD):
        return None
    open_to_others = path.stat().st_mode & OTHERS
    return HubLogin(
        username=found[USERNAME],
        password=found[PASSWORD],
        where=str(path),
        remark=f"others may read it; chmod 600 {path}" if open_to_others else "",
    )


def read_env(path: Path) -> dict[str, str]:
    """The variables of a ``.env`` file; ``{{…}}``, as samples have it, counts as empty.

    Raises:
        PrerequisiteMissing: it cannot be read.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise PrerequisiteMissing(
            f"cannot read {path}", why=type(error).__name__, next_step=f"ls -l {path}"
        ) from None
    matches = (_LINE.fullmatch(line) for line in lines)
    return {match["name"]: _value(match["value"]) for match in matches if match}


def _value(text: str) -> str:
    quoted = re.fullmatch(r"""(["'])(.*)\1""", text)
    value = quoted[2] if quoted else text
    return "" if re.fullmatch(r"\{\{.*\}\}", value) else value


def _env_file(fleet_file: Path) -> Path | None:
    for folder in fleet_file.resolve().parents:
        if (folder / "tasks.py").is_file():
            path = folder / ".env"
            return path if path.is_file() else None
    return None
