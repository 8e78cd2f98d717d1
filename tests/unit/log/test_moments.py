"""Moments and short durations from the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rayfleet.errors import UsageError
from rayfleet.log.moments import parse_moment, parse_seconds

NOW = 1795162606.0


def moment(text: str) -> float:
    return parse_moment(text, "--since", now=NOW)


@pytest.mark.parametrize(
    ("text", "ago"),
    [("5m", 300), ("1h30m", 5400), ("2d", 172800), ("90s", 90), ("0s", 0), ("48h", 172800)],
)
def test_a_duration_is_so_long_ago(text: str, ago: float) -> None:
    assert moment(text) == NOW - ago


@pytest.mark.parametrize(
    "text", ["2026-11-20T08:16:46Z", "2026-11-20T09:16:46+01:00", "2026-11-20 08:16:46Z"]
)
def test_a_time_with_a_zone_is_that_moment(text: str) -> None:
    assert moment(text) == NOW


def test_a_time_without_a_zone_is_one_of_this_machine() -> None:
    assert moment("2026-11-20 20:00") == datetime(2026, 11, 20, 20).timestamp()
    assert moment("2026-11-20") == datetime(2026, 11, 20).timestamp()


def test_a_time_of_day_is_one_of_today() -> None:
    today = datetime.fromtimestamp(NOW, UTC).astimezone().replace(microsecond=0)
    assert moment("7:05") == today.replace(hour=7, minute=5, second=0).timestamp()
    assert moment("07:05:30") == today.replace(hour=7, minute=5, second=30).timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "-5m", "5w", "tomorrow", "25:00", "2026-13-01", "1.5h", "\u0665m", "30m1h",
     "0001-01-01", "20261120", "99999999d"],
)  # fmt: skip
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"--since.*is no time"):
        moment(text)


def test_a_window_is_a_short_duration() -> None:
    assert parse_seconds("2s", "--merge", longest=300) == 2.0
    assert parse_seconds("500ms", "--merge", longest=300) == 0.5
    assert parse_seconds("1.5s", "--merge", longest=300) == 1.5
    assert parse_seconds("5m", "--merge", longest=300) == 300.0


@pytest.mark.parametrize("text", ["", "2", "0s", "6m", "-1s", "s", "2h", "1e3s"])
def test_a_window_is_nothing_else(text: str) -> None:
    with pytest.raises(UsageError, match="--merge"):
        parse_seconds(text, "--merge", longest=300)
