"""The filter language of Compute Engine's lists, as far as labels and states go.

``(labels.ray-cluster-name = x) AND ((status = RUNNING) OR (status = STAGING)) AND
(NOT labels.tpu_cores:*)``. https://cloud.google.com/compute/docs/reference/rest/v1/instances/list
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from rayfleet.emulator.refusals import Refused

TOKEN = re.compile(r'\s*(?:([()])|("(?:[^"\\]|\\.)*")|(!=|=|:|<=|>=|<|>)|([^\s()=!:<>"]+))')
COMPARISONS = ("=", "!=", ":", "eq", "ne")


def matches(expression: str, row: Mapping[str, Any]) -> bool:
    """Whether ``row`` is one that ``expression`` asks for; an empty expression asks for all.

    Raises:
        Refused: it is no expression.
    """
    if not expression.strip():
        return True
    reader = _Reader(_words(expression), expression)
    wanted = reader.any_of(row)
    if reader.rest:
        raise reader.wrong()
    return wanted


def _words(expression: str) -> list[str]:
    words, place = [], 0
    text = expression.rstrip()
    while place < len(text):
        found = TOKEN.match(text, place)
        if found is None:
            raise _wrong(expression)
        words.append(next(group for group in found.groups() if group is not None))
        place = found.end()
    return words


def _wrong(expression: str) -> Refused:
    why = f"'{expression}'. Invalid list filter expression."
    return Refused(400, f"Invalid value for field 'filter': {why}")


class _Reader:
    """A recursive descent; every level reads its part even when the answer is known."""

    def __init__(self, words: list[str], expression: str) -> None:
        self.rest = words
        self.expression = expression

    def wrong(self) -> Refused:
        return _wrong(self.expression)

    def any_of(self, row: Mapping[str, Any]) -> bool:
        found = self.all_of(row)
        while self.rest and self.rest[0] == "OR":
            self.take()
            found = self.all_of(row) or found
        return found

    def all_of(self, row: Mapping[str, Any]) -> bool:
        found = self.one(row)
        while self.rest and self.rest[0] not in ("OR", ")"):
            if self.rest[0] == "AND":
                self.take()
            found = self.one(row) and found
        return found

    def one(self, row: Mapping[str, Any]) -> bool:
        word = self.take()
        if word in ("NOT", "-"):
            return not self.one(row)
        if word == "(":
            found = self.any_of(row)
            if self.take() != ")":
                raise self.wrong()
            return found
        comparison, wanted = self.take(), self.take()
        if comparison not in COMPARISONS:
            raise self.wrong()
        return _compare(_value(row, word), comparison, wanted.strip('"'))

    def take(self) -> str:
        if not self.rest:
            raise self.wrong()
        return self.rest.pop(0)


def _value(row: Mapping[str, Any], path: str) -> str | None:
    value: Any = row
    for word in path.split("."):
        value = value.get(word.strip('"')) if isinstance(value, Mapping) else None
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _compare(value: str | None, comparison: str, wanted: str) -> bool:
    if comparison == ":":
        return value is not None and fnmatchcase(value, f"*{wanted}*" if wanted != "*" else "*")
    same = value is not None and (value == wanted or value.endswith(f"/{wanted}"))
    return same if comparison in ("=", "eq") else not same
