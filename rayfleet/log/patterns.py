"""Regular expressions from the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from rayfleet.errors import UsageError


def expressions(texts: Sequence[str], flag: str) -> tuple[re.Pattern[str], ...]:
    """The regular expressions that were given to ``flag``; ``^`` and ``$`` are those of lines.

    Raises:
        UsageError: one is empty, or no regular expression.
    """
    return tuple(_expression(text, flag) for text in texts)


def _expression(text: str, flag: str) -> re.Pattern[str]:
    if not text:
        raise UsageError(f"{flag} is empty", why="an empty expression matches everything")
    try:
        with warnings.catch_warnings():
            # Of what may change in later versions of Python.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{flag} {text!r} is no regular expression", why=str(error)) from error
