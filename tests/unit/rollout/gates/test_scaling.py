"""The autoscaler's report, as Ray itself prints it."""

from __future__ import annotations

from ray.autoscaler._private.autoscaler import AutoscalerSummary
from ray.autoscaler._private.load_metrics import LoadMetricsSummary
from ray.autoscaler._private.util import format_info_string
from ray.autoscaler.v2.schema import (
    ClusterStatus,
    LaunchRequest,
    NodeInfo,
    ResourceDemandSummary,
    Stats,
)
from ray.autoscaler.v2.utils import ClusterStatusFormatter

from rayfleet.rollout.gates.scaling import Scaling, parse_scaling

NOW = 1_795_280_000


def answer(text: object) -> object:
    return {"result": True, "data": {"clusterStatus": text}}


def launch(kind: str, status: LaunchRequest.Status, count: int = 1) -> LaunchRequest:
    return LaunchRequest(
        instance_type_name=kind,
        ray_node_type_name=kind,
        count=count,
        state=status,
        request_ts_s=NOW,
        failed_ts_s=NOW if status is LaunchRequest.Status.FAILED else None,
        details="no more capacity in the zone",
    )


def node(kind: str, name: str, details: str = "") -> NodeInfo:
    return NodeInfo(
        instance_type_name=kind,
        node_status="IDLE",
        node_id=name,
        ip_address="10.0.0.2",
        ray_node_type_name=kind,
        instance_id=name,
        details=details,
    )


def status(**changes: object) -> str:
    fields: dict[str, object] = {
        "resource_demands": ResourceDemandSummary(),
        "stats": Stats(request_ts_s=NOW),
        **changes,
    }
    return ClusterStatusFormatter.format(ClusterStatus(**fields))  # type: ignore[arg-type]


def test_a_quiet_autoscaler_asks_for_nothing_and_has_no_failures() -> None:
    text = status(idle_nodes=[node("head_default", "h")], active_nodes=[node("worker", "w")])
    assert parse_scaling(answer(text)) == Scaling()


def test_what_is_launched_or_set_up_is_asked_for() -> None:
    pending = LaunchRequest.Status.PENDING
    text = status(
        pending_launches=[launch("tpu_worker", pending), launch("tpu_slice_v5e_128", pending)],
        pending_nodes=[
            node("tpu_worker", "vm-1", "INSTALLING"),
            node("worker", "vm-2", ""),
        ],
    )
    scaling = parse_scaling(answer(text))
    assert scaling is not None
    assert scaling.asked == {"tpu_worker": 2, "tpu_slice_v5e_128": 1, "worker": 1}


def test_a_launch_of_several_counts_as_one_because_ray_prints_it_so() -> None:
    text = status(pending_launches=[launch("worker", LaunchRequest.Status.PENDING, count=4)])
    scaling = parse_scaling(answer(text))
    assert scaling is not None
    assert scaling.asked == {"worker": 1}


def test_failures_are_known_by_node_type_and_no_demand_is_taken_for_one() -> None:
    text = status(
        failed_launches=[launch("tpu_worker", LaunchRequest.Status.FAILED)],
        failed_nodes=[node("worker", "vm-3")],
    )
    scaling = parse_scaling(answer(text))
    assert scaling is not None
    assert set(scaling.failures) == {"tpu_worker", "worker"}
    assert scaling.failures["tpu_worker"][0].startswith("LaunchFailed (latest_attempt: ")
    assert scaling.failures["worker"] == ("NodeTerminated (instance_id: vm-3)",)


def test_the_report_of_the_older_autoscaler_is_read_too() -> None:
    summary = AutoscalerSummary(
        active_nodes={"worker": 1},
        idle_nodes={},
        pending_nodes=[("10.0.0.3", "worker", "setting-up")],
        pending_launches={"tpu_worker": 3},
        failed_nodes=[("10.0.0.4", "worker")],
    )
    load = LoadMetricsSummary(
        usage={}, resource_demand=[], pg_demand=[], request_demand=[], node_types=[]
    )
    scaling = parse_scaling(answer(format_info_string(load, summary)))
    assert scaling is not None
    assert scaling.asked == {"worker": 1, "tpu_worker": 3}
    assert list(scaling.failures) == ["worker"]


def test_no_report_is_not_an_empty_report() -> None:
    for text in (
        None,
        "",
        "No cluster status. It may take a few seconds for the Ray internal services to start up.",
    ):
        assert parse_scaling(answer(text)) is None
    assert parse_scaling({"data": None}) is None
    assert parse_scaling([]) is None
