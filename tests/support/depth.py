"""How far tests go into series of alike cases: a few of each in `make test`, all of them in
`make test-deep`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

DEEP = os.environ.get("TESTS") == "deep"


def series(cases: Iterable[T], *, few: int) -> tuple[T, ...]:
    """``cases``, of which the first ``few`` are enough every day."""
    found = tuple(cases)
    return found if DEEP else found[:few]
