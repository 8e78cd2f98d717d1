"""The gates of the workers: what is enough, and what is for a person to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rayfleet.cluster.config import NodeType
from rayfleet.cluster.live import count_workers
from rayfleet.rollout.gates.capacity import AUTOSCALER, WORKERS
from rayfleet.rollout.gates.gate import Question, Reading, Verdict
from rayfleet.rollout.gates.run import read_gate
from tests.unit.rollout.gates.fakes import FakeHead, FakeRay, config_of, node_row, subject_of

OWN = NodeType(name="worker", most=8)
TPU = NodeType(name="tpu_worker", most=8, preemptible=True)
SLICE = NodeType(name="tpu_slice_v5e_16", most=8, preemptible=True, hosts=4)
REFUSED = " tpu_worker: LaunchFailed (latest_attempt: 12:00:00)"


def said(
    gate: Question,
    minimum: Mapping[str, int],
    rows: Sequence[dict[str, Any]] = (),
    *,
    before: Mapping[str, int] | None = None,
    **ray: Any,
) -> Reading:
    fake = FakeRay(nodes=[node_row("head_default", head=True), *rows], **ray)
    config = config_of(minimum, OWN, TPU, SLICE)
    return read_gate(gate, subject_of(fake, config=config, before=before))


def test_a_cluster_without_a_minimum_passes_whatever_it_had() -> None:
    assert said(WORKERS, {}, before={"worker": 3}) == Reading(Verdict.PASS, "no minimum (3 before)")


def test_the_minimum_has_joined() -> None:
    reading = said(WORKERS, {"worker": 2}, [node_row("worker")] * 2, before={"worker": 5})
    assert reading == Reading(Verdict.PASS, "2 of 2 worker (5 before)")


def test_workers_that_the_cloud_keeps_are_all_waited_for() -> None:
    reading = said(WORKERS, {"worker": 2}, [node_row("worker")], pending=(" worker, 1 launching",))
    assert reading == Reading(Verdict.NOT_YET, "1 of 2 worker, at least 1 asked for")


def test_of_preemptible_workers_it_is_enough_that_the_rest_is_asked_for() -> None:
    reading = said(
        WORKERS,
        {"tpu_worker": 4},
        [node_row("tpu_worker")],
        before={"tpu_worker": 4},
        pending=(" tpu_worker, 1 launching",),
    )
    assert reading == Reading(Verdict.PASS, "1 of 4 tpu_worker, at least 1 asked for (4 before)")


def test_preemptible_workers_that_nobody_asked_for_are_waited_for() -> None:
    reading = said(WORKERS, {"tpu_worker": 4}, [node_row("tpu_worker")])
    assert reading == Reading(Verdict.NOT_YET, "1 of 4 tpu_worker")


def test_preemptible_workers_that_the_cloud_refuses_are_for_a_person() -> None:
    reading = said(WORKERS, {"tpu_worker": 4}, [node_row("tpu_worker")], failures=(REFUSED,))
    assert reading.verdict is Verdict.UNKNOWN
    assert reading.detail == "1 of 4 tpu_worker, LaunchFailed (latest_attempt: 12:00:00)"


def test_a_cluster_that_got_none_of_the_workers_it_had_is_for_a_person() -> None:
    asked = (" tpu_worker, 1 launching",)
    minimum = {"tpu_worker": 4}
    lost = said(WORKERS, minimum, before={"tpu_worker": 4}, pending=asked)
    assert lost.verdict is Verdict.UNKNOWN
    assert lost.detail.startswith("none has joined yet: 0 of 4 tpu_worker")
    # It had none before either: then nothing is lost.
    assert said(WORKERS, minimum, before={}, pending=asked).verdict is Verdict.PASS


def test_one_kind_that_lacks_workers_holds_up_all_and_is_named_first() -> None:
    reading = said(
        WORKERS,
        {"tpu_worker": 1, "worker": 1},
        [node_row("tpu_worker")],
        failures=(REFUSED,),
    )
    assert reading == Reading(Verdict.NOT_YET, "0 of 1 worker; 1 of 1 tpu_worker")


def test_only_some_of_many_kinds_are_named() -> None:
    minimum = {f"kind-{number}": 1 for number in range(9)}
    assert said(WORKERS, minimum).detail.endswith("0 of 1 kind-3; and 5 types more")


def test_a_slice_has_joined_when_all_of_its_hosts_have() -> None:
    hosts = [node_row("tpu_slice_v5e_16", slice_name="a")] * 4
    more = [node_row("tpu_slice_v5e_16", slice_name="b")] * 4
    assert said(WORKERS, {"tpu_slice_v5e_16": 2}, hosts + more).verdict is Verdict.PASS
    partial = said(WORKERS, {"tpu_slice_v5e_16": 2}, hosts + more[:3])
    assert partial == Reading(
        Verdict.PASS, "1 of 2 tpu_slice_v5e_16, 1 with only some of their 4 hosts"
    )
    assert said(WORKERS, {"tpu_slice_v5e_16": 2}, hosts).verdict is Verdict.NOT_YET


@pytest.mark.parametrize(
    ("names", "whole", "partial"),
    [("aaaa", 1, 0), ("aabb", 0, 2), ("aaaabbbbc", 2, 1), ("", 0, 0), ("aaaaa", 1, 0)],
)
def test_hosts_are_told_apart_by_the_label_of_their_slice(
    names: str, whole: int, partial: int
) -> None:
    rows = FakeRay(nodes=[node_row("tpu_slice_v5e_16", slice_name=name) for name in names])
    counted = count_workers(subject_of(rows).nodes(), [SLICE])
    found = counted.get("tpu_slice_v5e_16")
    assert (found.whole if found else 0, found.partial if found else 0) == (whole, partial)
    assert (found.hosts if found else 0) == len(names)


def test_hosts_without_a_label_are_counted_by_their_number() -> None:
    rows = FakeRay(nodes=[node_row("tpu_slice_v5e_16")] * 9)
    found = count_workers(subject_of(rows).nodes(), [SLICE])["tpu_slice_v5e_16"]
    assert (found.whole, found.partial, found.hosts) == (2, 1, 9)


def test_a_kind_that_the_config_does_not_know_is_counted_too() -> None:
    counted = count_workers(subject_of(FakeRay(nodes=[node_row("by-hand")])).nodes(), [])
    assert counted["by-hand"].whole == 1


def test_a_quiet_autoscaler_is_well() -> None:
    assert said(AUTOSCALER, {}) == Reading(Verdict.PASS, "no recent failures")


def test_failures_that_leave_nothing_short_are_only_told() -> None:
    reading = said(AUTOSCALER, {"tpu_worker": 1}, [node_row("tpu_worker")], failures=(REFUSED,))
    assert reading == Reading(Verdict.PASS, "recent failures: 1")
    # Asked for again: the cloud may have some now.
    again = said(
        AUTOSCALER, {"tpu_worker": 1}, failures=(REFUSED,), pending=(" tpu_worker, 1 launching",)
    )
    assert again.verdict is Verdict.PASS


def test_failures_that_leave_a_kind_short_are_for_a_person() -> None:
    reading = said(AUTOSCALER, {"tpu_worker": 2, "worker": 1}, failures=(REFUSED,))
    assert reading.verdict is Verdict.UNKNOWN
    assert reading.detail == "0 of 2 tpu_worker, LaunchFailed (latest_attempt: 12:00:00)"


def test_an_autoscaler_that_has_not_reported_is_waited_for() -> None:
    assert said(AUTOSCALER, {}, report=None).verdict is Verdict.NOT_YET


def test_an_autoscaler_whose_process_is_gone_is_not_well() -> None:
    subject = subject_of(head=FakeHead(FakeRay(), autoscaler=False))
    assert read_gate(AUTOSCALER, subject) == Reading(
        Verdict.NOT_YET, "its process does not run on the head"
    )


def test_when_enough_have_joined_the_autoscaler_is_not_even_asked() -> None:
    ray = FakeRay(nodes=[node_row("worker")], report=None)
    subject = subject_of(ray, config=config_of({"worker": 1}, OWN))
    assert read_gate(WORKERS, subject).verdict is Verdict.PASS
    assert not [call for call in ray.calls if "cluster_status" in call]
