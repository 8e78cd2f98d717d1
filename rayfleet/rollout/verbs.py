"""What an operator asks of a rollout, from any terminal: a record in its journal.

The process that carries it out reads it there. When there is none, whoever asked has to carry
it out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rayfleet.cluster.lease import Lease, Names, Place, lease_of, release_cluster
from rayfleet.errors import UnknownCluster, UsageError
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Change, Output, Plan
from rayfleet.rollout.requests import Verb
from rayfleet.rollout.state import FAILURES, GOOD, ClusterState, Outcome, State
from rayfleet.waiting import wait_until

ENDING_SECONDS = 60.0
"""How long a run that has written its end may take to end: its report, its last messages."""

_CLOSED = {Kind.PAUSED, Kind.FINISHED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What happens now, in words; ``drive``: nobody carries the rollout out, so that the caller
    has to (with an Engine)."""

    text: str
    drive: bool


def pause(rollout: Rollout, *, by: str) -> Answer:
    """Begin no further cluster; those in hand are finished first. ``by`` is ``user@host``.

    Raises:
        UsageError: the rollout is finished.
    """
    _require_open(rollout)
    if not rollout.running():
        resume = f"invoke rollouts.resume {rollout.id}"
        return Answer(text=f"nobody carries it out; to go on: {resume}", drive=False)
    answer = _ask(rollout, Verb.PAUSE, by=by, text="it finishes what is in hand, then it pauses")
    # Nobody there any more: that is a pause as well.
    return Answer(text=answer.text, drive=False)


def promote(rollout: Rollout, *, by: str, full: bool = False) -> Answer:
    """End the bake or the pause at hand; gates that were inconclusive have passed. With ``full``
    there are no bakes from now on.

    Raises:
        UsageError: the rollout is finished.
    """
    _require_open(rollout)
    text = "it goes on without any further bake" if full else "it goes on with what comes next"
    return _ask(rollout, Verb.PROMOTE, by=by, text=text, more={"full": True} if full else {})


def abort(rollout: Rollout, *, by: str) -> Answer:
    """Begin no further cluster, finish those in hand, and be finished.

    Raises:
        UsageError: the rollout is finished.
    """
    _require_open(rollout)
    return _ask(rollout, Verb.ABORT, by=by, text="it finishes what is in hand, then it ends")


def retry(rollout: Rollout, clusters: Sequence[str] = (), *, by: str) -> Answer:
    """Try failed clusters again from the step that failed, all of them when none is named. A
    rollout that has failed or was aborted goes on.

    Raises:
        UsageError: there is nothing to try again, or a named one has not failed.
        UnknownCluster: a name is not of this rollout.
    """
    plan, state = rollout.plan, rollout.state()
    chosen = _chosen(
        rollout, clusters, plan, state, fits=_may_retry, what="has failed", verb=Verb.RETRY
    )
    if not chosen and not state.aborted:
        raise _nothing(rollout, "no cluster of it has failed")
    text = f"tried again: {_named(chosen)}" if chosen else "it goes on where it was aborted"
    return _ask(rollout, Verb.RETRY, by=by, clusters=clusters, text=text)


def skip(rollout: Rollout, clusters: Sequence[str], *, by: str) -> Answer:
    """Leave clusters out; a failed one counts as a failure no more.

    Raises:
        UsageError: none is named, or a named one is done.
        UnknownCluster: a name is not of this rollout.
    """
    if not clusters:
        raise UsageError(
            "no cluster is named to be left out",
            next_step=f"invoke rollouts.skip {rollout.id} --cluster NAME",
        )
    plan, state = rollout.plan, rollout.state()
    _chosen(rollout, clusters, plan, state, fits=_may_skip, what="can be left out", verb=Verb.SKIP)
    answer = _ask(
        rollout, Verb.SKIP, by=by, clusters=clusters, text=f"left out: {_named(clusters)}"
    )
    if not state.paused and state.result is None:
        return answer
    # Who leaves one out of a rollout that rests does not ask it to go on with the others.
    held = [name for name in clusters if state.clusters[name].held]
    flags = "".join(f" --cluster {name}" for name in held)
    free = f"; to give {_named(held)} free: invoke rollouts.unlock {rollout.id}{flags}"
    return Answer(text=answer.text + (free if held else ""), drive=False)


def rollback(rollout: Rollout, clusters: Sequence[str] = (), *, by: str) -> Answer:
    """Take clusters back to what they ran before, with their jobs; all that were changed when
    none is named.

    Raises:
        UsageError: there is nothing to take back, or it is not known what a named one ran.
        UnknownCluster: a name is not of this rollout.
    """
    plan, state = rollout.plan, rollout.state()
    chosen = _chosen(
        rollout,
        clusters,
        plan,
        state,
        fits=_may_go_back,
        what="was changed and not taken back",
        verb=Verb.ROLLBACK,
    )
    if not chosen:
        raise _nothing(rollout, "no cluster of it was changed and is not taken back")
    for name in clusters:
        target = plan.targets[name]
        if target.change is Change.RESTART and not target.previous:
            raise UsageError(
                f"{name} cannot be taken back",
                why="the config that it ran with before is not known",
                next_step=f"invoke rollouts.retry {rollout.id} --cluster {name}",
            )
    text = f"taken back: {_named(chosen)}"
    return _ask(rollout, Verb.ROLLBACK, by=by, clusters=clusters, text=text)


def unlock(place: Place, rollout: Rollout, clusters: Sequence[str] = ()) -> tuple[Lease, ...]:
    """End the leases that ``rollout`` left behind, on all of its clusters or on the named ones.
    Returns those that have gone.

    Raises:
        Locked: a living process works on a cluster by one of them; none has gone.
        UnknownCluster: a name is not of this rollout.
    """
    plan = rollout.plan
    _require_known(rollout, plan, clusters)
    names = {
        name: Names(name=name, identity=plan.targets[name].identity)
        for name in clusters or plan.targets
    }
    leases = {name: lease_of(place, each) for name, each in names.items()}
    ours = {
        name: lease
        for name, lease in leases.items()
        if lease is not None and lease.rollout == rollout.id
    }
    now = time.time()
    for lease in ours.values():
        if not lease.stale(now):
            raise lease.refusal(now)
    for name in ours:
        try:  # first: who goes on with the rollout must know, whenever we are killed
            rollout.append(Kind.RELEASED, cluster=name)
        finally:
            release_cluster(place, names[name], rollout=rollout.id)
    return tuple(ours.values())


def _ask(
    rollout: Rollout,
    verb: Verb,
    *,
    by: str,
    text: str,
    clusters: Sequence[str] = (),
    more: Output | None = None,
) -> Answer:
    data = {"verb": verb.value, "clusters": list(clusters), "by": by, **(more or {})}
    asked = rollout.append(Kind.REQUEST, data=data)
    return Answer(text=text, drive=not _heard(rollout, asked))


def _heard(rollout: Rollout, asked: Record) -> bool:
    """Whether a process is there that acts on the request ``asked``. One that has written its
    end does not: it is waited for."""
    before = rollout.records()[: asked.number - 1]
    marks = (record.kind for record in reversed(before))
    last = next((kind for kind in marks if kind is Kind.BEGUN or kind in _CLOSED), None)
    if last is Kind.BEGUN:
        return rollout.running()
    wait_until(
        lambda: not rollout.running(),
        what=f"the end of the run of rollout {rollout.id}",
        timeout=ENDING_SECONDS,
        interval=0.05,
        next_step=f"invoke rollouts.resume {rollout.id}",
    )
    return False


def _require_open(rollout: Rollout) -> None:
    result = rollout.state().result
    if result is not None:
        raise _nothing(rollout, f"it is finished: {result}")


def _nothing(rollout: Rollout, why: str) -> UsageError:
    return UsageError(
        f"rollout {rollout.id}: nothing to do",
        why=why,
        next_step=f"invoke rollouts.show {rollout.id}",
    )


def _chosen(
    rollout: Rollout,
    clusters: Sequence[str],
    plan: Plan,
    state: State,
    *,
    fits: Callable[[ClusterState], bool],
    what: str,
    verb: Verb,
) -> list[str]:
    """The clusters that a request means: those that are named, or all that fit."""
    _require_known(rollout, plan, clusters)
    fitting = [name for name, cluster in state.clusters.items() if fits(cluster)]
    wrong = [name for name in clusters if name not in fitting]
    if wrong:
        raise UsageError(
            f"{verb} does not fit {', '.join(wrong)}",
            why=f"of this rollout {what}: {', '.join(fitting) or 'none'}",
            next_step=f"invoke rollouts.show {rollout.id}",
        )
    return list(clusters) or fitting


def _require_known(rollout: Rollout, plan: Plan, clusters: Sequence[str]) -> None:
    unknown = [name for name in clusters if name not in plan.targets]
    if unknown:
        raise UnknownCluster(
            f"rollout {rollout.id} has no cluster {', '.join(unknown)}",
            why=f"it has {', '.join(plan.targets)}",
            next_step=f"invoke rollouts.show {rollout.id}",
        )


def _may_retry(cluster: ClusterState) -> bool:
    bad = FAILURES | {Outcome.INCONCLUSIVE}
    ways = [way for way in (cluster.forward, cluster.back) if way is not None]
    return any(way.outcome in bad for way in ways)


def _may_skip(cluster: ClusterState) -> bool:
    forward, back = cluster.forward, cluster.back
    done = forward is not None and forward.outcome in GOOD and back is None
    return not done and not (forward is not None and forward.outcome is Outcome.SKIPPED)


def _may_go_back(cluster: ClusterState) -> bool:
    forward, back = cluster.forward, cluster.back
    if forward is None or not forward.touched:
        return False
    return back is None or back.outcome in FAILURES or back.outcome is Outcome.INCONCLUSIVE


def _named(names: Sequence[str], *, most: int = 8) -> str:
    rest = len(names) - most
    shown = ", ".join(names[:most])
    return shown if rest <= 0 else f"{shown} and {rest} more"
