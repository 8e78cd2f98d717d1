"""What a channel of people is told."""

from __future__ import annotations

from dataclasses import replace

from rayfleet.rollout.model import Settings
from rayfleet.rollout.tell import messages
from tests.support.rollout_examples import big_fleet, failing_canary, four_good, killed_and_resumed


def test_before_they_hear_of_clusters_in_waves_and_of_each_owners_jobs() -> None:
    lines = messages.before(failing_canary().plan).splitlines()
    assert lines == [
        "rollout 20261121T163000Z-4f2a of infra/fleet.yaml begins: 3 clusters in 2 waves, "
        "about 9 min",
        "by ana@ops-1: invoke restart --all --waves 1,100%",
        "wave 1, canary: us-east5",
        "wave 2, 100%: us-central2, europe-west4",
        "3 running jobs: stopped, and given back after the restart",
        "- ana: train-llama-8b on us-east5",
        "- bob: eval-mmlu on us-east5",
        "- carol: tokenize-c4 on us-central2",
        "will be killed on us-east5: detached actor Registry of namespace serve",
    ]


def test_jobs_that_will_be_killed_are_said_loudly_and_unknown_ones_are_not_none() -> None:
    plan = four_good().plan
    targets = dict(plan.targets)
    targets["us-west4"] = replace(targets["us-west4"], jobs_problem="the head does not answer")
    plan = replace(plan, settings=Settings(preserve_jobs=False), targets=targets)
    text = messages.before(plan)
    assert "--no-preserve-jobs: 4 running jobs WILL BE KILLED" in text
    assert "jobs that could not be listed, and may be killed: us-west4" in text
    assert "- unknown: sweep-17 on europe-west4" in text


def test_after_they_hear_of_result_time_failures_and_the_next_command() -> None:
    example = failing_canary()
    text = messages.after(example.plan, example.state, seconds=238, report="r/report.html")
    lines = text.splitlines()
    assert lines[0] == (
        "rollout 20261121T163000Z-4f2a: failed after 3 min 58 s: 1 rolled back, 2 not begun"
    )
    assert lines[1].startswith("us-east5 (start): rolled back: the head does not")
    assert lines[2].startswith("  next: invoke rollouts.retry")
    assert lines[3:] == ["3 jobs: 3 kept, 0 not", "report: r/report.html"]


def test_a_pause_names_its_reason_and_how_to_go_on() -> None:
    whole = killed_and_resumed()
    number = next(record.number for record in whole.records if record.kind == "paused")
    example = whole.until(number)
    text = messages.after(example.plan, example.state, seconds=60, report="")
    assert "paused (us-east5 has failed) after 1 min" in text
    assert text.endswith("next: invoke rollouts.resume 20261121T163000Z-4f2a")
    assert messages.taken_up(example.plan, example.state, "bob@laptop").startswith(
        "rollout 20261121T163000Z-4f2a goes on, by bob@laptop: 3 done"
    )


def test_a_message_of_300_clusters_fits_its_room_in_whole_lines() -> None:
    text = messages.before(big_fleet().plan)
    assert messages.fitting(text, 10_000) == text
    short = messages.fitting(text, 700)
    assert len(short) <= 700
    lines = short.splitlines()
    assert lines[:-1] == text.splitlines()[: len(lines) - 1]
    left = len(text.splitlines()) - len(lines) + 1
    assert lines[-1] == f"and {left} more line{'s' if left > 1 else ''}"


def test_room_is_counted_as_chats_count_it() -> None:
    text = "\U0001d400" * 1500
    assert len(messages.fitting(text, 2000).encode("utf-16-le")) // 2 <= 2000
