"""How a rollout is asked for on the command line, on top of what the fleet file says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from rayfleet.arguments import parse_count, parse_duration
from rayfleet.errors import UsageError
from rayfleet.fleet.model import RolloutPolicy
from rayfleet.rollout.model import OnFailure, Settings, Unhealthy

E = TypeVar("E", bound=StrEnum)

_PERCENT = re.compile(r"([1-9][0-9]?|100)%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags as they were typed; an empty text leaves the word to the fleet file."""

    parallel: str = ""
    per_region: str = ""
    waves: str = ""
    bake: str = ""
    max_failures: str = ""
    max_untouched: str = ""
    on_failure: str = ""
    unhealthy: str = ""
    only_outdated: bool = False
    preserve_jobs: bool = True

    def settings(self, policy: RolloutPolicy) -> Settings:
        """What holds for this rollout.

        Raises:
            UsageError: a flag makes no sense; the message says what would.
        """
        return Settings(
            parallel=_count(self.parallel, "--parallel", policy.parallel, smallest=1),
            per_region=_count(self.per_region, "--per-region", policy.per_region),
            max_failures=_count(self.max_failures, "--max-failures", policy.max_failures),
            max_untouched=_count(self.max_untouched, "--max-untouched", policy.max_untouched),
            on_failure=_one_of(OnFailure, self.on_failure or policy.on_failure, "--on-failure"),
            unhealthy=_one_of(Unhealthy, self.unhealthy or policy.unhealthy, "--unhealthy"),
            bake=parse_duration(self.bake, "--bake") if self.bake else policy.bake,
            preserve_jobs=self.preserve_jobs,
            only_outdated=self.only_outdated,
        )

    def wave_sizes(self, policy: RolloutPolicy) -> tuple[int | str, ...]:
        """The sizes of the waves: counts and percentages of what is left to do.

        Raises:
            UsageError: one is neither.
        """
        if not self.waves:
            return policy.waves
        return tuple(_size(text.strip(), self.waves) for text in self.waves.split(","))

    def flags(self) -> tuple[str, ...]:
        """The words that ask for the same again."""
        words = ["--only-outdated"] if self.only_outdated else []
        words += [] if self.preserve_jobs else ["--no-preserve-jobs"]
        for name in ("parallel", "per_region", "waves", "bake", "max_failures", "max_untouched"):
            words += _flag(name, getattr(self, name))
        words += _flag("on_failure", self.on_failure)
        return (*words, *_flag("unhealthy", self.unhealthy))


def command_line(task: str, words: Sequence[str]) -> str:
    """``invoke TASK WORDS`` as one types it."""
    return shlex.join(["invoke", task, *words])


def _flag(name: str, value: str) -> list[str]:
    return [f"--{name.replace('_', '-')}", value] if value else []


def _count(text: str, flag: str, default: int, *, smallest: int = 0) -> int:
    return parse_count(text, flag, smallest=smallest) if text else default


def _one_of(kind: type[E], text: str, flag: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{flag} {text}: not one of {', '.join(kind)}") from None


def _size(text: str, whole: str) -> int | str:
    if _PERCENT.fullmatch(text):
        return text
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(
        f"--waves {whole}: {text!r} is no wave",
        why="a wave is a count from 1 or a percentage, as in 1,25%,100%",
    )
