"""The decorator of every task, and words of a command line that Invoke has no notion of: those
that may be left out, and a command behind two dashes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from invoke.parser.argument import Argument
from invoke.parser.parser import ParseMachine
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

_HANDLE = ParseMachine.handle.__code__
_PLACE = ParseMachine.see_positional_arg.__code__
_COMPLETE = ParseMachine.complete_context.__code__


class Word(Argument):
    """A positional argument that is no option's place: ``invoke TASK --help`` shows the help.

    Invoke 2.2 gives it the next word of whatever form, ``--help`` too, and asks for what is
    missing even where it has help to show. It asks by looking for arguments whose value is None.
    """

    @property
    def value(self) -> Any:
        """What was given, else None; while an option is read or help is wanted, empty."""
        if self._value is not None:
            return self._value
        asker = _asker(sys._getframe(1))
        return "" if _reads_an_option(asker) or _shows_help(asker) else None

    @value.setter
    def value(self, given: str) -> None:
        self.set_value(given, cast=True)


class OptionalWord(Word):
    """A positional argument that is its default where no word is left for it.

    Invoke asks every positional argument for a value twice: while it looks for a place for a
    word, and at the end, where None is an error. It is None to the first question only.
    """

    @property
    def value(self) -> Any:
        """What was given, else the default, else None while the parser has a word to place."""
        if self._value is not None:
            return self._value
        return None if _places_a_word(_asker(sys._getframe(1))) else self.default

    @value.setter
    def value(self, given: str) -> None:
        self.set_value(given, cast=True)


class Words(Word):
    """A positional argument that takes every word that is no option; none is fine as well."""

    @property
    def value(self) -> Any:
        """What was given, else an empty list, and None while the parser has a word to place."""
        return None if _places_a_word(_asker(sys._getframe(1))) else self._value

    @value.setter
    def value(self, given: str) -> None:
        self.set_value(given)

    def set_value(self, value: Any, cast: bool = True) -> None:  # noqa: ARG002 (Invoke's)
        """Add one more; Invoke's own method asks for the value, which is None to it."""
        self.raw_value = value
        self._value = [*(self._value or ()), value]


def task(*body: Any, **options: Any) -> Callable[..., Any]:
    """Invoke's decorator, for a :class:`WordTask` without one-letter flags of Invoke's choice."""
    return invoke_task(*body, **{"klass": WordTask, "auto_shortflags": False, **options})


class WordTask(Task[Any]):
    """A task with positional arguments; those that have a default may be left out."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Invoke's own answer, with words for positional arguments.

        A list without a default is positional in Invoke's eyes only, and stays an option.
        """
        texts = dict(self.help)
        arguments: list[Argument] = super().get_arguments(ignore_unknown_help)
        self.help = texts  # Invoke takes each text out of the task: the next to ask had none
        parameters = self.argspec(self.body).parameters
        for argument in arguments:
            if argument.positional and argument.kind is list:
                if parameters[str(argument.name)].default is None:
                    argument.__class__ = Words
            elif argument.positional:
                argument.__class__ = Word if argument.default is None else OptionalWord
        return arguments


def after_dashes() -> tuple[str, ...]:
    """The words behind the first ``--`` of the command line, as the shell gave them.

    Invoke joins them with blanks, which loses their limits, and keeps the result to itself.
    """
    words = sys.argv[1:]
    return tuple(words[words.index("--") + 1 :]) if "--" in words else ()


def _places_a_word(asker: FrameType | None) -> bool:
    if asker is None or asker.f_code is _COMPLETE:
        return False
    return not _reads_an_option(asker)


def _reads_an_option(asker: FrameType | None) -> bool:
    if asker is None or asker.f_code is not _HANDLE:
        return False
    return str(asker.f_locals["token"]).startswith("-")


def _shows_help(asker: FrameType | None) -> bool:
    if asker is None or asker.f_code is not _COMPLETE:
        return False
    initial = asker.f_locals["self"].initial
    return initial is not None and bool(initial.args["help"].value)


def _asker(getter: FrameType) -> FrameType | None:
    """The frame of the parser that ``getter`` answers, if it is one that counts."""
    # In between are the property that lists what is missing and, up to 3.11, its comprehension.
    frame = getter.f_back
    for _ in range(3):
        if frame is None or frame.f_code in (_HANDLE, _PLACE, _COMPLETE):
            return frame
        frame = frame.f_back
    return None
