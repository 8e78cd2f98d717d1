"""What the reader found, as values: every way in which Ray's own lists mislead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.job.model import JobStatus
from rayfleet.job.snapshot.parse import NO_SELECTOR, parse_look
from rayfleet.job.snapshot.source import Look
from rayfleet.job.vault.model import LostKind, SavedJob

HEAD = "aa" * 28
WORKER = "bb" * 28

# As Ray 2.60 writes it: runtime_env_json is there only for a job with a runtime_env.
RECORD: dict[str, Any] = {
    "status": "PENDING",
    "entrypoint": "python x.py",
    "message": "Job has not started yet.",
    "error_type": None,
    "start_time": 1_700_000_000_500,
    "end_time": None,
    "metadata": None,
    "entrypoint_num_cpus": 0,
    "entrypoint_num_gpus": 0,
    "entrypoint_memory": 0,
    "entrypoint_resources": None,
    "driver_agent_http_address": None,
    "driver_node_id": None,
    "driver_exit_code": None,
}
PINNED = {"label_selector": {"ray.io/node-id": HEAD}, "end_time": 0}


def live(name: str = "s1", supervisor: object = PINNED, **changes: object) -> dict[str, Any]:
    """One job that has not ended, as the reader sends it."""
    return {"id": name, "record": json.dumps(RECORD | changes), "supervisor": supervisor}


def actor(name: str, **changes: object) -> dict[str, Any]:
    """One detached actor, as the reader sends it."""
    return {"name": name, "class": "Thing", "namespace": "mine", "module": "x"} | changes


def look(*jobs: dict[str, Any], **changes: object) -> Look:
    document = {
        "session": "session_1",
        "ray_version": "2.60.0",
        "heads": [HEAD],
        "live": jobs,
        "ended": {},
        "actors": [],
        "drivers": [],
    }
    return parse_look(json.dumps(document | changes).encode())


def job(supervisor: object = PINNED, **changes: object) -> SavedJob:
    return look(live(supervisor=supervisor, **changes)).jobs[0]


def test_a_job_that_was_given_nothing_keeps_every_none() -> None:
    assert job() == SavedJob(
        submission_id="s1",
        status=JobStatus.PENDING,
        started=1_700_000_000_500,
        entrypoint="python x.py",
        num_cpus=0,
        num_gpus=0,
        memory=0,
    )


def test_a_job_without_a_working_dir_or_with_an_empty_runtime_env_is_a_job() -> None:
    """Marin 6.3 #6: one such job ended the whole backup."""
    assert job().runtime_env is None
    assert job(runtime_env_json="{}").runtime_env == {}
    assert job(runtime_env_json='{"env_vars": null}').runtime_env == {"env_vars": None}


def test_every_field_is_taken_as_it_is() -> None:
    env = {"working_dir": "gcs://_ray_pkg_1.zip", "pip": {"packages": [], "pip_check": False}}
    found = job(
        entrypoint="printf '%s' \"$A\" && python 'a b.py' # ünï\n",
        metadata={"owner": "me", "empty": ""},
        runtime_env_json=json.dumps(env),
        entrypoint_num_cpus=0.5,
        entrypoint_num_gpus=1,
        entrypoint_memory=2**31,
        entrypoint_resources={"TPU-v4-8-head": 1, "half": 0.5},
        supervisor={"label_selector": {"zone": "in(a,b)", "spot": "!true"}, "end_time": 0},
    )
    assert found.entrypoint == "printf '%s' \"$A\" && python 'a b.py' # ünï\n"
    assert found.metadata == {"owner": "me", "empty": ""}
    assert found.runtime_env == env
    assert (found.num_cpus, found.num_gpus, found.memory) == (0.5, 1, 2**31)
    assert isinstance(found.num_gpus, int)
    assert found.resources == {"TPU-v4-8-head": 1, "half": 0.5}
    assert found.label_selector == {"zone": "in(a,b)", "spot": "!true"}
    assert found.missing == ()


def test_the_node_that_ray_adds_is_dropped_and_one_that_was_asked_for_is_kept() -> None:
    assert job().label_selector is None
    assert job(supervisor={"label_selector": {}, "end_time": 0}).label_selector is None
    worker = {"ray.io/node-id": WORKER}
    assert job(supervisor={"label_selector": worker, "end_time": 0}).label_selector == worker
    # Ray adds nothing to a job that asks for something.
    asked = job(entrypoint_num_cpus=1)
    assert asked.label_selector == {"ray.io/node-id": HEAD}


def test_the_node_of_an_earlier_head_is_dropped_too() -> None:
    """With a GCS that survives the head, a job still names the node of the head before."""
    earlier = {"label_selector": {"ray.io/node-id": WORKER}, "end_time": 0}
    assert look(live(supervisor=earlier), heads=[HEAD, WORKER]).jobs[0].label_selector is None


def test_a_job_that_ray_is_just_starting_lacks_its_label_selector() -> None:
    assert job(supervisor=None).missing == (NO_SELECTOR,)


def test_the_supervisor_of_an_earlier_job_with_the_same_id_is_not_this_ones() -> None:
    began = RECORD["start_time"]
    selector = {"zone": "a"}
    earlier = job(supervisor={"label_selector": selector, "end_time": began - 1})
    assert (earlier.label_selector, earlier.missing) == (None, (NO_SELECTOR,))
    own = job(supervisor={"label_selector": selector, "end_time": began + 1})
    assert (own.label_selector, own.missing) == (selector, ())


@pytest.mark.parametrize(
    "record",
    [
        *("", "{", "[]", "null", '{"status": "PENDING"}'),
        *(
            json.dumps(RECORD | odd)
            for odd in (
                {"status": "NEW"},
                {"metadata": "owner"},
                {"entrypoint_resources": 5},
                {"runtime_env_json": "["},
                {"runtime_env_json": '"x"'},
                {"runtime_env_json": '{"py_modules": 5}'},
            )
        ),
    ],
)
def test_one_odd_record_is_named_and_keeps_no_other_job_from_being_saved(record: str) -> None:
    found = look({"id": "odd", "record": record, "supervisor": None}, live("good"))
    odd, good = found.jobs
    assert (odd.submission_id, good.submission_id) == ("odd", "good")
    assert odd.missing[0].startswith("its record cannot be read")
    assert good.missing == ()


def test_a_field_that_nobody_here_knows_is_missing_unless_it_is_null() -> None:
    """A newer Ray may have been given more than a restore gives back."""
    found = job(entrypoint_label_selector={"zone": "a"}, a_null=None, more="")
    assert found.missing == (
        "its field 'entrypoint_label_selector', which this rayfleet does not know",
        "its field 'more', which this rayfleet does not know",
    )
    assert found.entrypoint == "python x.py"
    new = job(supervisor=None, more=0)
    assert new.missing == ("its field 'more', which this rayfleet does not know", NO_SELECTOR)


def test_jobs_are_in_the_order_of_their_start() -> None:
    rows = (live("c", start_time=2), live("b", start_time=3), live("a", start_time=2))
    assert [job.submission_id for job in look(*rows).jobs] == ["a", "c", "b"]


def test_what_has_ended_is_known_by_its_status() -> None:
    statuses = {"x": "SUCCEEDED", "y": "FAILED", "z": "STOPPED"}
    found = look(ended={k: {"status": v, "error_type": ""} for k, v in statuses.items()})
    assert found.jobs == ()
    assert found.ended == {
        "x": JobStatus.SUCCEEDED,
        "y": JobStatus.FAILED,
        "z": JobStatus.STOPPED,
    }


def test_only_drivers_that_connected_by_themselves_are_lost() -> None:
    """Every submission has a driver too, and Ray's dashboard is one."""
    driver = {"job_id": "01", "namespace": "x", "submission_id": "", "address": "h", "pid": 7}
    own = driver | {"job_id": "02", "namespace": "_ray_internal_dashboard"}
    submitted = driver | {"job_id": "03", "submission_id": "s1"}
    (lost,) = look(drivers=[driver, own, submitted]).unrestorable
    assert (lost.kind, lost.name, lost.detail) == (LostKind.DRIVER, "01", "process 7 on h")


def test_detached_actors_are_lost_unless_they_are_rays_own() -> None:
    rows = [
        actor("cache"),
        actor("", module="y", **{"class": "Nameless"}),
        actor("queue", module="ray.util.queue"),
        actor("datasets_stats_actor", module="ray.data._internal.stats"),
        actor("train_state", module="ray.train.v2._internal.state.state_actor"),
    ]
    lost = look(actors=rows).unrestorable
    assert {one.kind for one in lost} == {LostKind.ACTOR}
    assert [one.name for one in lost] == ["cache", "Nameless", "queue"]
    assert lost[0].detail == "Thing in namespace mine"


def test_serve_is_told_by_application() -> None:
    def serve(name: str) -> dict[str, Any]:
        return actor(name, namespace="serve", module="ray.serve._private.x")

    controller = serve("SERVE_CONTROLLER_ACTOR")
    replicas = [serve("SERVE_REPLICA::chat#Model#1"), serve("SERVE_REPLICA::chat#Model#2")]
    replicas.append(serve("SERVE_REPLICA::embed#Main#1"))
    lost = look(actors=[controller, serve("SERVE_PROXY_ACTOR-1"), *replicas]).unrestorable
    assert {one.kind for one in lost} == {LostKind.SERVE}
    assert [(one.name, one.detail) for one in lost] == [
        ("chat", "2 replicas"),
        ("embed", "1 replica"),
    ]
    (idle,) = look(actors=[controller]).unrestorable
    assert (idle.kind, idle.name) == (LostKind.SERVE, "serve")


@pytest.mark.parametrize("document", [b"", b"[]", b'{"session": "x"}', b"\xff"])
def test_an_account_that_makes_no_sense_is_no_empty_list(document: bytes) -> None:
    with pytest.raises(ToolFailed, match="cannot be read"):
        parse_look(document)


def test_an_account_that_makes_no_sense_is_not_quoted() -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_look(b'{"session": "x", "live": ["hunter2"], "heads": []}')
    assert "hunter2" not in str(caught.value)


def test_jobs_that_their_cluster_dropped_have_not_ended() -> None:
    rows = {
        "done": {"status": "SUCCEEDED", "error_type": ""},
        "wrong": {"status": "FAILED", "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR"},
        "lost": {"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_START_FAILURE"},
        "dropped": {"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_DIED"},
    }
    assert look(ended=rows).ended == {"done": JobStatus.SUCCEEDED, "wrong": JobStatus.FAILED}
