"""Words of a command line that Invoke has no notion of: those that may be left out, and a
command behind two dashes."""

from __future__ import annotations

import sys
from typing import Any

from invoke.parser.argument import Argument
from invoke.parser.parser import ParseMachine
from invoke.tasks import Task


class OptionalWord(Argument):
    """A positional argument that is its default where no word is left for it.

    Invoke asks every positional argument for a value twice: while it looks for a place for a
    word, and at the end, where None is an error. It is None to the first question only.
    """

    @property
    def value(self) -> Any:
        """What was given, else the default, else None while the parser has a word to place."""
        if self._value is not None:
            return self._value
        return None if _places_a_word() else self.default

    @value.setter
    def value(self, given: str) -> None:
        self.set_value(given, cast=True)


class WordTask(Task[Any]):
    """A task whose positional arguments may be left out."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Invoke's own answer, with optional words for positional arguments."""
        arguments: list[Argument] = super().get_arguments(ignore_unknown_help)
        for argument in arguments:
            if argument.positional:
                argument.__class__ = OptionalWord
        return arguments


def after_dashes() -> tuple[str, ...]:
    """The words behind the first ``--`` of the command line, as the shell gave them.

    Invoke joins them with blanks, which loses their limits, and keeps the result to itself.
    """
    words = sys.argv[1:]
    return tuple(words[words.index("--") + 1 :]) if "--" in words else ()


def _places_a_word() -> bool:
    frame = sys._getframe(2)  # who asks for the value
    # In between are the property that lists what is missing and, up to 3.11, its comprehension.
    for _ in range(3):
        if frame.f_code is ParseMachine.see_positional_arg.__code__:
            return True
        if frame.f_code is ParseMachine.handle.__code__:
            return not str(frame.f_locals["token"]).startswith("-")
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
