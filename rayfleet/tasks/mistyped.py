"""What is said of a command line that Invoke cannot read: what is wrong, and the next command."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from invoke.exceptions import ParseError

if TYPE_CHECKING:
    from invoke.collection import Collection
    from invoke.parser.context import ParserContext

# In Invoke 2.2's words; what has others is shown as it is.
_UNKNOWN = re.compile(r"No idea what '(.*)' is!", re.DOTALL)
_NO_VALUE = re.compile(r"Flag <Argument: ([\w-]+).*> needed value")
_MISSING = re.compile(r"'.*' did not receive required positional arguments: (.*)")


def explain_mistakes(tasks: Collection) -> None:
    """Let the whole program say of every command line that cannot be read how it goes on.

    For a tasks.py whose tasks are all ours. Invoke has no hook for it: it prints the error's own
    text and exits with 1.
    """
    names = tuple(tasks.task_names)

    def text(error: ParseError) -> str:
        return explained(error, names)

    ParseError.__str__ = text  # type: ignore[method-assign, assignment]


def explained(error: ParseError, tasks: Iterable[str]) -> str:
    """The message of ``error`` in the form of our own errors; ``tasks`` are all there are."""
    text = str(error.args[0])
    context = error.context
    task = context.name if context is not None and context.name else ""
    what, next_step = text.rstrip("!"), f"invoke {task} --help" if task else "invoke --list"
    if found := _UNKNOWN.fullmatch(text):
        word = found[1]
        if word.startswith("-"):
            what = f"{task or 'invoke'} has no option {word!r}"
            next_step = _help_and(task, _alike(word, _options(context)))
        else:
            no_word = f"{task} takes no {word!r}, and " if task else ""
            what = f"{no_word}there is no task {word!r}"
            alike = _alike(word, tasks)
            next_step = f"invoke {alike}" if alike else next_step
    elif found := _NO_VALUE.match(text):
        what = f"{task or 'invoke'}: --{found[1]} needs a value"
    elif found := _MISSING.fullmatch(text):
        what = f"{task} needs {found[1].replace(chr(39), '')}"
    return f"error: {what}\n  next: {next_step}"


def _help_and(task: str, option: str) -> str:
    command = f"invoke {task} --help" if task else "invoke --help"
    return f"{command} (did you mean {option}?)" if option else command


def _options(context: ParserContext | None) -> list[str]:
    return [] if context is None else [*context.flags, *context.inverse_flags]


def _alike(word: str, known: Iterable[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")
