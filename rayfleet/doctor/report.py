"""What a look at this machine found, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rayfleet.errors import PrerequisiteMissing

if TYPE_CHECKING:
    from rayfleet.console import Console


class State(StrEnum):
    """How a thing stands: ``warn`` may do, ``missing`` will not."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a task needs: what was ``found``, and the command that mends it."""

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All checks, in the order in which one mends them."""

    checks: tuple[Check, ...]

    @property
    def missing(self) -> tuple[Check, ...]:
        """The checks without which tasks fail."""
        return tuple(check for check in self.checks if check.state is State.MISSING)

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the checks as a table, or as a JSON list of objects."""
        if as_json:
            fields = ("name", "state", "found", "remedy")
            console.json([{name: getattr(check, name) for name in fields} for check in self.checks])
            return
        console.table(
            ("check", "state", "found", "mend it with"),
            [(check.name, check.state, check.found, check.remedy) for check in self.checks],
        )

    def raise_missing(self) -> None:
        """Raise :class:`PrerequisiteMissing` naming all that is missing, if anything is."""
        if not self.missing:
            return
        names = ", ".join(check.name for check in self.missing)
        commands = self.missing[0].remedy if len(self.missing) == 1 else "the commands above"
        raise PrerequisiteMissing(
            f"this machine lacks {names}", next_step=f"{commands}; then: invoke doctor"
        )


def ok(name: str, found: str) -> Check:
    """A thing that is there."""
    return Check(name=name, state=State.OK, found=found)


def warn(name: str, found: str, remedy: str) -> Check:
    """A thing that may do."""
    return Check(name=name, state=State.WARN, found=found, remedy=remedy)


def missing(name: str, found: str, remedy: str) -> Check:
    """A thing without which tasks fail."""
    return Check(name=name, state=State.MISSING, found=found, remedy=remedy)
