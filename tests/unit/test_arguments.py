"""Numbers from the command line."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rayfleet.arguments import parse_age, parse_count, parse_duration, parse_number
from rayfleet.errors import UsageError


@pytest.mark.parametrize("text", ["-1", "x", "", "1.5", "²", "0"])
def test_what_is_no_count_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(UsageError, match="--tail"):
        parse_count(text, "--tail")


@pytest.mark.parametrize("text", ["-1", "x", "", "nan", "inf", "1e999"])
def test_what_is_no_number_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(UsageError, match="--num-cpus"):
        parse_number(text, "--num-cpus", smallest=0.0)


def test_numbers_are_read() -> None:
    assert parse_count("0", "--tail", smallest=0) == 0
    assert parse_number("0.5", "--num-cpus", smallest=0.0) == 0.5


@pytest.mark.parametrize("text", ["", "0d", "30", "30s", "-1d", "1.5h", "d", "999999d"])
def test_what_is_no_age_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(UsageError, match="--older-than"):
        parse_age(text, "--older-than")


def test_ages_are_read() -> None:
    assert parse_age("30d", "--older-than") == timedelta(days=30)
    assert parse_age("90m", "--older-than") == timedelta(hours=1.5)


@pytest.mark.parametrize("text", ["", "0", "30", "1d", "-1s", "1.5h", "s", "999999s", "²m", "1M"])
def test_what_is_no_duration_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(UsageError, match="--bake"):
        parse_duration(text, "--bake")


def test_durations_are_read_in_seconds() -> None:
    assert parse_duration("0s", "--bake") == 0.0
    assert parse_duration("30s", "--bake") == 30.0
    assert parse_duration("10m", "--bake") == 600.0
    assert parse_duration("2h", "--bake") == 7200.0
