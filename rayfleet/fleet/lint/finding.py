"""What a rule of lint has to say about one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rayfleet.fleet.lint.secret_forms import secret_in
from rayfleet.harmless import on_one_line

Level = Literal["error", "warning"]
LONGEST = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of ``fleet.lint``; only errors make it fail.

    ``where`` is a cluster or ``file:line``; ``rule``, ``file``, ``number`` (of the line, from 1)
    and ``key`` (dotted) are empty where a finding is about the fleet and not about a config.
    """

    level: Level
    where: str
    text: str
    rule: str = ""
    file: str = ""
    number: int = 0
    key: str = ""

    @property
    def is_error(self) -> bool:
        """True when the fleet, or the cluster, cannot be worked with as it is."""
        return self.level == "error"

    @property
    def line(self) -> str:
        """``level: where: text``."""
        return f"{self.level}: {self.where}: {self.text}"

    @property
    def record(self) -> dict[str, str | int]:
        """The finding for ``--json``."""
        return {
            "level": self.level,
            "rule": self.rule,
            "where": self.where,
            "file": self.file,
            "line": self.number,
            "key": self.key,
            "text": self.text,
        }


def printable(text: object, *, longest: int = LONGEST) -> str:
    """``text`` on one line that a terminal only shows, cut to ``longest``; a secret is masked."""
    whole = str(text)
    if secret_in(whole):
        return "***"
    return on_one_line(whole[:longest]) + ("…" if len(whole) > longest else "")
