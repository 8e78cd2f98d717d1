"""The gates of the head, one by one."""

from __future__ import annotations

import pytest

from rayfleet.job.dashboard import Unauthorized
from rayfleet.rollout.gates.chosen import trouble
from rayfleet.rollout.gates.gate import Question, Reading, Verdict
from rayfleet.rollout.gates.run import read_gate
from rayfleet.rollout.gates.running import AGE, CONFIG, HEALTH, IMAGE, SSH, VERSION
from tests.unit.job.canned import FakeClock
from tests.unit.rollout.gates.fakes import (
    DIGEST,
    SESSION,
    FakeHead,
    FakeRay,
    config_of,
    subject_of,
)

OLD = "sha256:" + "b" * 64


def said(gate: Question, **options: object) -> Reading:
    return read_gate(gate, subject_of(**options))  # type: ignore[arg-type]


def test_a_head_that_runs_a_command_is_reached() -> None:
    assert said(SSH).verdict is Verdict.PASS


def test_a_head_that_does_not_answer_is_waited_for() -> None:
    reading = said(SSH, head=FakeHead(FakeRay(), answers=False))
    assert reading == Reading(Verdict.NOT_YET, "us-east5: the connection was lost")


def test_a_well_head_is_well() -> None:
    assert said(HEALTH).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("ray", "expected"),
    [
        (FakeRay(up=False), "the Ray dashboard does not answer"),
        (FakeRay(gcs=False), "GCS health check failed"),
        (FakeRay(nodes=[]), "the head is not listed as a live node yet"),
        (FakeRay(agent=False), "the agent of the head does not answer yet"),
    ],
)
def test_a_head_that_comes_up_is_waited_for(ray: FakeRay, expected: str) -> None:
    reading = said(HEALTH, ray=ray)
    assert reading.verdict is Verdict.NOT_YET
    assert expected in reading.detail


@pytest.mark.parametrize("gate", [HEALTH, VERSION])
@pytest.mark.parametrize(
    ("token", "why"), [(None, "it wants a token"), ("other", "the token is not the cluster's")]
)
def test_a_token_that_is_refused_is_a_no_at_once_and_never_shown(
    gate: Question, token: str | None, why: str
) -> None:
    reading = said(gate, ray=FakeRay(token="s3cret"), token=token)
    assert reading.verdict is Verdict.FAIL
    assert why in reading.detail
    assert "invoke auth.check" in reading.next_step
    assert "s3cret" not in repr(reading)
    assert "other" not in reading.detail.replace("another", "")


def test_the_right_token_is_sent_with_every_question() -> None:
    ray = FakeRay(token="s3cret")
    with subject_of(ray, token="s3cret") as subject:
        assert read_gate(HEALTH, subject).verdict is Verdict.PASS
        assert read_gate(VERSION, subject).verdict is Verdict.PASS
        assert "s3cret" not in repr(subject)


def test_a_refused_token_is_an_error_of_its_own_kind() -> None:
    with pytest.raises(Unauthorized):
        subject_of(FakeRay(token="s3cret")).ask("/api/version")


def test_the_version_is_compared_with_what_the_image_says() -> None:
    assert said(VERSION) == Reading(Verdict.PASS, "Ray 2.60.0")
    reading = said(VERSION, head=FakeHead(FakeRay(), image_ray="2.61.0"))
    assert reading == Reading(Verdict.FAIL, "Ray 2.60.0 runs, and its image has 2.61.0")


def test_the_version_of_an_image_that_says_nothing_is_only_told() -> None:
    assert said(VERSION, head=FakeHead(FakeRay(), image_ray="")) == Reading(
        Verdict.PASS, "Ray 2.60.0"
    )
    assert said(VERSION, ray=FakeRay(version={})).verdict is Verdict.UNKNOWN


def test_the_image_of_the_machine_must_be_the_pinned_one() -> None:
    assert said(IMAGE, vm=DIGEST) == Reading(Verdict.PASS, DIGEST)
    assert said(IMAGE, vm=OLD) == Reading(Verdict.FAIL, f"{OLD} runs, {DIGEST} is wanted")


def test_where_ray_runs_in_a_container_its_image_counts() -> None:
    right = FakeHead(FakeRay(), image=f"host/repo/name:tag@{DIGEST}")
    wrong = FakeHead(FakeRay(), image=f"host/repo/name:tag@{OLD}")
    assert said(IMAGE, head=right) == Reading(Verdict.PASS, DIGEST)
    assert said(IMAGE, head=wrong).verdict is Verdict.FAIL
    assert said(IMAGE, head=FakeHead(FakeRay(), image="host/repo/name:tag")).verdict is (
        Verdict.UNKNOWN
    )


def test_without_a_pinned_digest_the_image_is_only_told() -> None:
    config = config_of({}, image="host/repo/name:tag")
    assert said(IMAGE, config=config, vm=OLD).verdict is Verdict.PASS


def test_the_head_must_have_been_started_with_this_config() -> None:
    assert said(CONFIG) == Reading(Verdict.PASS, "c" * 12)
    other = FakeHead(FakeRay(), record='{"config": "dddddddddddddddd"}')
    assert said(CONFIG, head=other) == Reading(
        Verdict.FAIL, "started with dddddddddddd, cccccccccccc is wanted"
    )


@pytest.mark.parametrize("record", ["", "{", "{}", "[]"])
def test_a_head_without_a_record_of_its_start_is_for_a_person(record: str) -> None:
    assert said(CONFIG, head=FakeHead(FakeRay(), record=record)).verdict is Verdict.UNKNOWN


def aged(seconds: int) -> FakeHead:
    return FakeHead(FakeRay(), gcs=((seconds, f"/ray/gcs_server --session-name={SESSION}"),))


def test_a_gcs_that_is_younger_than_the_stop_is_new() -> None:
    clock = FakeClock(now=1000.0)
    assert said(AGE, head=aged(30), emptied=970.0, clock=clock).verdict is Verdict.PASS
    assert said(AGE, head=aged(29), emptied=970.0, clock=clock).verdict is Verdict.PASS


def test_a_gcs_that_is_older_than_the_stop_is_the_old_one() -> None:
    reading = said(AGE, head=aged(31), emptied=970.0, clock=FakeClock(now=1000.0))
    assert reading.verdict is Verdict.FAIL
    assert reading.detail == "the GCS has run for 31 s, and all was gone only 30 s ago"


def test_a_cluster_that_did_not_run_has_no_stop_to_compare_with() -> None:
    assert said(AGE, head=aged(31)) == Reading(Verdict.PASS, "the GCS has run for 31 s")


def test_an_age_that_cannot_be_read_is_for_a_person() -> None:
    assert said(AGE, head=FakeHead(FakeRay(), gcs=()), emptied=970.0).verdict is Verdict.UNKNOWN


def test_a_well_cluster_has_no_trouble() -> None:
    assert trouble(subject_of()) == ""


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (FakeHead(FakeRay(), answers=False), "ssh: us-east5: the connection was lost"),
        (FakeHead(FakeRay(gcs=False)), "health: us-east5: the Ray dashboard does not answer: "),
        (FakeHead(FakeRay(agent=False)), "health: the agent of the head does not answer yet"),
        (FakeHead(FakeRay(token="t")), "health: us-east5: the head refuses us: it wants a token"),
    ],
)
def test_the_first_trouble_of_a_cluster_is_told_in_one_line(head: FakeHead, expected: str) -> None:
    found = trouble(subject_of(head=head))
    assert found.startswith(expected)
    assert "\n" not in found
