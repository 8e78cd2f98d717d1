"""What an operator may ask of a rollout, and what each request does to its state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import partial

from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.model import OnFailure, Plan, Step
from rayfleet.rollout.state import BAD, GOOD, ClusterState, Outcome, Result, State, Way
from rayfleet.rollout.verdict import result_of


class Verb(StrEnum):
    """``data["verb"]`` of a REQUEST."""

    PAUSE = "pause"
    PROMOTE = "promote"
    ABORT = "abort"
    RETRY = "retry"
    SKIP = "skip"
    ROLLBACK = "rollback"


def apply_request(plan: Plan, state: State, record: Record) -> State:
    """The state after a REQUEST. Clusters that it cannot mean are left as they are.

    Raises:
        ValueError: there is no such verb.
    """
    by = str(record.data.get("by") or "an operator")
    verb = Verb(str(record.data["verb"]))
    if verb is Verb.PAUSE:
        return replace(state, pause_wanted="" if state.result else by)
    if verb is Verb.ABORT:
        return state if state.result else _abort(state)
    if verb is Verb.PROMOTE:
        full = bool(record.data.get("full"))
        return state if state.result else _promote(state, by, full=full)
    named = _named(record)
    names = [name for name in named if name in state.clusters]
    if named and not names:
        return state  # no name at all means all of them
    if verb is Verb.SKIP:
        return _ended(_each(state, names, partial(_skipped, at=record.at)))
    return _rollback(state, names) if verb is Verb.ROLLBACK else _retry(plan, state, names)


def _named(record: Record) -> list[str]:
    named = record.data.get("clusters") or ()
    if not isinstance(named, list | tuple):
        raise ValueError(f"record {record.number}: clusters is no list")
    return [str(name) for name in named]


def _each(
    state: State, names: Iterable[str], change: Callable[[ClusterState], ClusterState]
) -> State:
    changed = {name: change(state.clusters[name]) for name in names}
    return replace(state, clusters={**state.clusters, **changed})


def _abort(state: State) -> State:
    """What has not begun is not begun any more, in either direction."""
    state = _each(state, state.clusters, _dropped)
    return replace(state, aborted=True, all_back=False, pause_wanted="")


def _dropped(cluster: ClusterState) -> ClusterState:
    back = cluster.back
    if back is not None:
        back = None if back.begun is None else _not_again(back)
    return replace(_kept(cluster), back=back)


def _kept(cluster: ClusterState) -> ClusterState:
    """The cluster, not to be tried again."""
    forward = None if cluster.forward is None else _not_again(cluster.forward)
    return replace(cluster, forward=forward)


def _not_again(way: Way) -> Way | None:
    """Take back the wish to try it again: it stands where it stood."""
    if not way.again:
        return way
    if way.begun is None:
        return None
    outcome = Outcome.FAILED if way.touched else Outcome.UNTOUCHED
    ended = way.times[-1][2] if way.times else way.begun
    return replace(way, again=False, outcome=outcome, ended=ended)


def _promote(state: State, by: str, *, full: bool) -> State:
    """End bakes that go on, and take inconclusive gates for passed."""
    waiting = [name for name, cluster in state.clusters.items() if _inconclusive(cluster)]
    state = _each(state, waiting, partial(_passed, by=by))
    baking = dict.fromkeys(state.baking, 0.0)
    return replace(state, baking=baking, pause_wanted="", full=state.full or full)


def _inconclusive(cluster: ClusterState) -> bool:
    way = cluster.back or cluster.forward
    return way is not None and way.outcome is Outcome.INCONCLUSIVE


def _passed(cluster: ClusterState, by: str) -> ClusterState:
    way = cluster.back or cluster.forward or Way()
    outputs = {**way.outputs, Step.GATES: {"promoted": by}}
    way = replace(
        way, outputs=outputs, step=None, tries=0, notes=(), error={}, outcome=None, ended=None
    )
    return replace(cluster, back=way) if cluster.back else replace(cluster, forward=way)


def _ended(state: State) -> State:
    """A rollout that had ended as failed, when nothing of it counts as a failure any more and
    nothing is left to do."""
    result = result_of(state)
    well = result in {Result.DONE, Result.WITHOUT_JOBS}
    return replace(state, result=result) if state.result and well else state


def _skipped(cluster: ClusterState, at: datetime) -> ClusterState:
    forward, back = cluster.forward, cluster.back
    taken_back = back is not None and back.outcome in GOOD
    if back is not None:
        back = None if back.begun is None else _left_out(back, at)
    if forward is None or (taken_back and forward.outcome is not Outcome.SKIPPED):
        forward = replace(forward or Way(), outcome=Outcome.SKIPPED, ended=at)
    else:
        forward = _left_out(forward, at)
    return replace(cluster, forward=forward, back=back)


def _left_out(way: Way, at: datetime) -> Way:
    if way.again or way.outcome in BAD:
        return replace(way, outcome=Outcome.SKIPPED, again=False, ended=at)
    return replace(way, left_out=True) if way.outcome is None else way


def _rollback(state: State, names: list[str]) -> State:
    """Mark what is to go back. All of it, or any of it while the rollout rests, means that no
    further cluster goes forward: who takes one back then does not want the others to go on."""
    whole = not names or bool(state.paused or state.result)
    if whole:
        state = _each(state, state.clusters, _kept)
    state = _each(state, names or state.clusters, _marked)
    return replace(
        state,
        result=None,
        aborted=state.aborted or whole,
        all_back=state.all_back or not names,  # one whose thread has just begun goes back too
    )


def _marked(cluster: ClusterState) -> ClusterState:
    forward, back = cluster.forward, cluster.back
    if back is not None:
        wanted = back.outcome in BAD or back.outcome is Outcome.SKIPPED
        return replace(cluster, back=_again(back)) if wanted else cluster
    forward = None if forward is None else _not_again(forward)
    nothing = forward is None or (forward.outcome is not None and not forward.touched)
    return replace(cluster, forward=forward, back=None if nothing else Way())


def _again(way: Way) -> Way:
    """The way, to be tried again from the step that failed.

    One that was not touched starts over: since its lock was given free, others may have changed
    the cluster. A head that failed its gates is looked at by START, which launches only what is
    not there; what follows START is to be done for the head that comes of it.
    """
    way = replace(way, again=True, left_out=False, outcome=None, ended=None, locked=0, tries=0)
    if not way.touched:
        return replace(way, outputs={}, notes=(), owed=())
    if way.step not in {Step.START, Step.GATES}:
        return way
    steps = list(Step)
    kept = steps[: steps.index(Step.START)]
    outputs = {step: output for step, output in way.outputs.items() if step in kept}
    notes = way.notes if way.step is Step.START else ()
    return replace(way, outputs=outputs, step=Step.START, notes=notes)


def _retry(plan: Plan, state: State, names: list[str]) -> State:
    """Failed ones are tried again, and those that were taken back are as if never begun."""
    if state.result in {Result.DONE, Result.WITHOUT_JOBS}:
        return state
    afresh = bool(names) or state.aborted or plan.settings.on_failure is OnFailure.ROLLBACK_ALL
    chosen = names or list(state.clusters)
    before = state.clusters
    state = _each(state, chosen, partial(_retried, afresh=afresh))
    changed = {name for name in chosen if state.clusters[name].forward != before[name].forward}
    waves = {number for number, w in enumerate(plan.waves) if not changed.isdisjoint(w.clusters)}
    return replace(
        state,
        baked=state.baked - waves,
        baking={number: until for number, until in state.baking.items() if number not in waves},
        aborted=False,
        all_back=False,
        result=None,
    )


def _retried(cluster: ClusterState, *, afresh: bool) -> ClusterState:
    forward, back = cluster.forward, cluster.back
    if forward is None:
        return cluster
    if back is not None and back.begun is not None:
        if back.outcome in BAD:  # its jobs are in the vault until it is back
            return replace(cluster, back=_again(back))
        good = afresh and forward.outcome in GOOD
        if back.outcome in GOOD and (good or forward.outcome in BAD):
            return replace(cluster, forward=Way(again=True), back=None)
        return cluster
    if forward.outcome not in BAD:
        return cluster
    return replace(cluster, forward=_again(forward), back=None)
