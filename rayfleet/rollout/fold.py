"""What a record means for the state of a rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Direction, Plan, Step, owed_after
from rayfleet.rollout.requests import apply_request
from rayfleet.rollout.state import BAD, GOOD, ClusterState, Outcome, Result, State, Way, first_owed


def begin(plan: Plan) -> State:
    """The state before anything has happened."""
    return State(clusters={name: ClusterState() for name in plan.targets})


def fold(plan: Plan, records: Iterable[Record]) -> State:
    """The state after ``records``, which are all of the rollout in their order.

    Raises:
        ValueError: a record is not of this plan.
    """
    state = begin(plan)
    for record in records:
        state = apply(plan, state, record)
    return state


def apply(plan: Plan, state: State, record: Record) -> State:
    """The state after one more record.

    Raises:
        ValueError: the record is not of this plan.
    """
    if record.kind is Kind.REQUEST:
        return apply_request(plan, state, record)
    if not record.cluster:
        return _rollout(state, record)
    before = state.clusters.get(record.cluster)
    if before is None:
        raise ValueError(f"record {record.number}: the plan has no cluster {record.cluster!r}")
    return replace(state, clusters={**state.clusters, record.cluster: _cluster(before, record)})


def _rollout(state: State, record: Record) -> State:
    """A record of the rollout as a whole."""
    data = record.data
    if record.kind is Kind.BEGUN:
        # Who takes a rollout up again answers the pause of the run before.
        return replace(_resumed(state), paused="", pause_wanted="")
    if record.kind is Kind.PAUSED:
        return replace(state, paused=str(data.get("reason") or "paused"), pause_wanted="")
    if record.kind is Kind.FINISHED:
        return replace(state, result=Result(str(data["result"])), paused="", pause_wanted="")
    if record.kind is Kind.BAKING:
        until = float(str(data["until"]))
        return replace(state, baking={**state.baking, int(str(data["wave"])): until})
    if record.kind is Kind.BAKED:
        wave = int(str(data["wave"]))
        left = {number: until for number, until in state.baking.items() if number != wave}
        return replace(state, baked=state.baked | {wave}, baking=left)
    raise ValueError(f"record {record.number}: {record.kind} without a cluster")


def _resumed(state: State) -> State:
    """After a pause, gates that were inconclusive are tried again, unless nothing is to go on."""
    if not state.paused or state.aborted:
        return state
    clusters = {name: _tried_again(cluster) for name, cluster in state.clusters.items()}
    return replace(state, clusters=clusters)


def _tried_again(cluster: ClusterState) -> ClusterState:
    if cluster.back is not None:
        return replace(cluster, back=_open(cluster.back))
    if cluster.forward is not None:
        return replace(cluster, forward=_open(cluster.forward))
    return cluster


def _open(way: Way) -> Way:
    if way.outcome is not Outcome.INCONCLUSIVE:
        return way
    return replace(way, outcome=None, ended=None)


def _cluster(cluster: ClusterState, record: Record) -> ClusterState:
    """A record of one cluster."""
    if record.kind is Kind.RELEASED:
        return replace(cluster, held=False)
    way = cluster.way(record.direction) or Way()
    if record.kind is Kind.HELD:
        lease = str(record.data.get("lease", ""))
        if cluster.was_free(lease):
            way = way.held_anew()
        cluster, way = replace(cluster, held=True, lease=lease), _began(way, record.at)
    elif record.kind is Kind.CLUSTER:
        way = _ended(way, record)
    elif record.step is None:
        raise ValueError(f"record {record.number}: {record.kind} without a step")
    elif record.kind is Kind.INTENT:
        way = _intent(_began(way, record.at), record.step, record.at)
    elif record.kind is Kind.NOTE:
        owed = owed_after(way.owed, record.step, record.data)
        way = replace(way, notes=(*way.notes, record.data), owed=owed)
    elif record.kind is Kind.DONE:
        way = _done(way, record.step, record)
    elif record.kind is Kind.FAILED:
        way = _failed(way, record.step, record)
    if record.direction is Direction.BACK:
        return replace(cluster, back=way)
    if way.outcome is not None and not way.touched and not_begun(cluster.back):
        return replace(cluster, forward=way, back=None)  # nothing to take back after all
    return replace(cluster, forward=way)


def not_begun(way: Way | None) -> bool:
    """Whether the way is asked for at most."""
    return way is None or way.begun is None


def _began(way: Way, at: datetime) -> Way:
    """A way that a thread has taken up: locked once before, or left out just when it began."""
    if way.begun is not None and not way.again and way.outcome is None:
        return way
    left_out = way.left_out or way.outcome is Outcome.SKIPPED
    begun = way.begun or at
    return replace(way, begun=begun, again=False, outcome=None, ended=None, left_out=left_out)


def _intent(way: Way, step: Step, at: datetime) -> Way:
    same = way.step is step
    return replace(
        way,
        step=step,
        tries=way.tries + 1 if same else 1,
        notes=way.notes if same else (),
        error={},
        times=(*way.times, (step, at, None)),
        owed=first_owed(way, step),
    )


def _done(way: Way, step: Step, record: Record) -> Way:
    return replace(
        way,
        outputs={**way.outputs, step: record.data},
        step=None,
        tries=0,
        notes=(),
        error={},
        times=_closed(way.times, record.at),
        owed=owed_after(way.owed, step, record.data),
    )


def _failed(way: Way, step: Step, record: Record) -> Way:
    """A step failed; or a cluster that was done already has turned bad while its wave baked."""
    if way.outcome in GOOD:
        way = replace(way, outcome=Outcome.FAILED, ended=record.at)
    else:
        way = _began(way, record.at)
    return replace(way, step=step, error=record.data, times=_closed(way.times, record.at))


def _ended(way: Way, record: Record) -> Way:
    outcome = Outcome(str(record.data["outcome"]))
    why = {key: value for key, value in record.data.items() if key != "outcome"}
    good = outcome in GOOD
    return replace(
        way,
        outcome=Outcome.SKIPPED if way.left_out and outcome in BAD else outcome,
        step=None if good else way.step,
        notes=() if good else way.notes,
        error={} if good else {**way.error, **why},
        times=_closed(way.times, record.at),
        begun=way.begun or record.at,
        ended=record.at,
        again=False,
        locked=way.locked + (outcome is Outcome.LOCKED),
    )


_Times = tuple[tuple[Step, datetime, datetime | None], ...]


def _closed(times: _Times, at: datetime) -> _Times:
    if not times or times[-1][2] is not None:
        return times
    step, begun, _ = times[-1]
    return (*times[:-1], (step, begun, at))
