"""How far tests go into series of alike cases: a few of each in `make test`, all of them in
`make test-deep`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

DEEP = os.environ.get("TESTS") == "deep"

REASON = "one of make test-deep"
deep = pytest.mark.skipif(not DEEP, reason=REASON)
"""Marks a long test of what others show more quickly."""


def series(cases: Iterable[T], *, few: int) -> tuple[T, ...]:
    """``cases``, of which the first ``few`` are enough every day."""
    found = tuple(cases)
    return found if DEEP else found[:few]
