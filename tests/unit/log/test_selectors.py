"""The words of --log."""

from __future__ import annotations

import pytest

from rayfleet.errors import UsageError
from rayfleet.log.selectors import read_logs


def globs(*words: str) -> list[str]:
    return [pattern.glob for pattern in read_logs(words).patterns]


def test_without_a_word_the_autoscalers_files_of_the_heads_are_followed() -> None:
    assert globs() == ["monitor.log", "monitor.out", "monitor.err"]
    selection = read_logs([])
    assert selection.nodes == "head"
    assert {pattern.role for pattern in selection.patterns} == {"autoscaler"}


def test_every_program_of_ray_has_its_files() -> None:
    assert globs("gcs_server") == ["gcs_server.log", "gcs_server.out", "gcs_server.err"]
    assert globs("raylet") == ["raylet.log", "raylet.out", "raylet.err"]
    assert globs("dashboard") == ["dashboard.log", "dashboard.out", "dashboard.err"]
    assert globs("monitor") == globs("autoscaler")


def test_words_are_followed_together_once_each_and_files_told_apart() -> None:
    assert globs("raylet", "monitor", "raylet", "monitor.log") == [
        *globs("raylet"),
        *globs("monitor"),
    ]


@pytest.mark.parametrize(
    ("words", "several"),
    [
        ([], True),
        (["raylet", "monitor.log"], True),
        (["monitor.*"], True),
        (["monitor.log"], False),
        (["job:raysubmit_1"], False),
        (["job:*"], True),
    ],
)
def test_files_are_told_apart_when_there_may_be_several(words: list[str], several: bool) -> None:
    assert read_logs(words).several is several


def test_a_job_is_looked_for_on_all_nodes() -> None:
    selection = read_logs(["job:raysubmit_1", "raylet"])
    assert selection.nodes == "all"
    assert globs("job:raysubmit_1") == ["job-driver-raysubmit_1.log"]


def test_a_driver_by_ids_of_rays_own_means_what_its_workers_print() -> None:
    assert globs("job:01000000") == [
        "worker-*-01000000-*.out",
        "worker-*-01000000-*.err",
        "runtime_env_setup-01000000.log",
    ]


def test_a_glob_is_relative_to_rays_logs_or_absolute() -> None:
    assert globs("events/event_*.log", "/var/log/syslog") == [
        "events/event_*.log",
        "/var/log/syslog",
    ]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("raylett", "did you mean raylet"),
        ("", "is no log"),
        ("job:", "names no job"),
        ("job:a b", "names no job"),
        ("job:../x", "names no job"),
        ("../*.log", "no glob of files"),
        ("logs/", "no glob of files"),
    ],
)
def test_anything_else_is_a_usage_error(word: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_logs([word])
