"""What an operator asks of a rollout, from any terminal: a record in its journal.

The process that carries it out reads it there. When there is none, whoever asked has to carry
it out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rayfleet.cluster.lease import Lease, Names, Place, lease_of, release_cluster
from rayfleet.errors import UnknownCluster, UsageError
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Change, Output, Plan
from rayfleet.rollout.requests import Verb, apply_request
from rayfleet.rollout.state import ClusterState, State
from rayfleet.rollout.tell.facts import lost_jobs, standing
from rayfleet.rollout.tell.words import count
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
    wish = preview(rollout, Verb.PAUSE, by=by)
    answer = _ask(wish, "it finishes what is in hand, then it pauses")
    # Nobody there any more: that is a pause as well.
    return Answer(text=answer.text, drive=False)


def promote(rollout: Rollout, *, by: str, full: bool = False) -> Answer:
    """End the bake or the pause at hand; gates that were inconclusive have passed. With ``full``
    there are no bakes from now on.

    Raises:
        UsageError: the rollout is finished, or goes on without any bake to end.
    """
    _require_open(rollout)
    wish = preview(rollout, Verb.PROMOTE, by=by, full=full)
    if not wish.changes and rollout.running():
        raise _nothing(rollout, "no bake goes on, and no gate is inconclusive")
    text = "it goes on without any further bake" if full else "it goes on with what comes next"
    return _ask(wish, text)


def abort(rollout: Rollout, *, by: str) -> Answer:
    """Begin no further cluster, finish those in hand, and be finished.

    Raises:
        UsageError: the rollout is finished, or is being aborted.
    """
    _require_open(rollout)
    wish = preview(rollout, Verb.ABORT, by=by)
    if not wish.changes and rollout.running():
        raise _nothing(rollout, "it is being aborted already")
    return _ask(wish, "it finishes what is in hand, then it ends")


def retry(rollout: Rollout, clusters: Sequence[str] = (), *, by: str) -> Answer:
    """Try failed clusters again from the step that failed, all of them when none is named. A
    rollout that has failed or was aborted goes on.

    Raises:
        UsageError: there is nothing to try again, or a named one has not failed.
        UnknownCluster: a name is not of this rollout.
    """
    wish = _fitting(rollout, Verb.RETRY, clusters, by=by, what="have failed")
    if not wish.changes:
        raise _nothing(rollout, "no cluster of it has failed")
    chosen = wish.chosen
    return _ask(wish, f"tried again: {_named(chosen)}" if chosen else "it goes on with the others")


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
    wish = _fitting(rollout, Verb.SKIP, clusters, by=by, what="can be left out")
    state = wish.before
    answer = _ask(wish, f"left out: {_named(clusters)}")
    if not state.paused and state.result is None:
        return answer
    # Who leaves one out of a rollout that rests does not ask it to go on with the others.
    held = [name for name in clusters if state.clusters[name].held]
    flags = "".join(f" --cluster {name}" for name in held)
    free = f"; to release {_named(held)}: invoke rollouts.unlock {rollout.id}{flags}"
    return Answer(text=answer.text + (free if held else ""), drive=False)


def left_as_they_are(wish: Preview) -> list[str]:
    """What a skip means for clusters that were changed already: one line each, then how each is
    mended."""
    lines = []
    for name in wish.chosen:
        cluster = wish.after.clusters[name]
        if any(way and way.left_out and way.touched for way in (cluster.forward, cluster.back)):
            lines.append(
                f"{name} is being changed: should that fail, it stays as it is then, maybe down,"
                " with its jobs only in the vault"
            )
        if not cluster.left_changed:
            continue
        lost, mend = lost_jobs(wish.rollout.plan, name, cluster)
        jobs = f"; only in the vault: {count(len(lost), 'job')}, {_named(lost)}" if lost else ""
        lines += [f"{name} was changed and may be down{jobs}", f"  next: {mend}"]
    return lines


def rollback(rollout: Rollout, clusters: Sequence[str] = (), *, by: str) -> Answer:
    """Take clusters back to what they ran before, with their jobs; all that were changed when
    none is named.

    Raises:
        UsageError: there is nothing to take back, or it is not known what a named one ran.
        UnknownCluster: a name is not of this rollout.
    """
    what = "were changed and not rolled back"
    wish = _fitting(rollout, Verb.ROLLBACK, clusters, by=by, what=what)
    if not wish.chosen:
        raise _nothing(rollout, "no cluster of it was changed and is not rolled back")
    for name in clusters:
        target = rollout.plan.targets[name]
        if target.change is Change.RESTART and not target.previous:
            raise UsageError(
                f"{name} cannot be taken back",
                why="the config that it ran with before is not known",
                next_step=f"invoke rollouts.retry {rollout.id} --cluster {name}",
            )
    return _ask(wish, f"taken back: {_named(wish.chosen)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A request that is not made yet, and the state of its rollout with it and without.

    ``chosen`` are the clusters that it changes, ``data`` what its record says.
    """

    rollout: Rollout
    data: Output
    before: State
    after: State
    chosen: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return self.before != self.after


def preview(
    rollout: Rollout, verb: Verb, clusters: Sequence[str] = (), *, by: str, full: bool = False
) -> Preview:
    """What a request would change, by the rules with which the journal is read. Nothing is asked.

    Raises:
        UnknownCluster: a name is not of this rollout.
    """
    plan, before = rollout.plan, rollout.state()
    _require_known(rollout, plan, clusters)
    data: dict[str, object] = {"verb": verb.value, "clusters": list(clusters), "by": by}
    data |= {"full": True} if full else {}
    record = Record(number=1, at=datetime.now(UTC), kind=Kind.REQUEST, data=data)
    after = apply_request(plan, before, record)
    changed = (
        name
        for name in clusters or before.clusters
        if _changed(verb, before.clusters[name], after.clusters[name])
    )
    return Preview(rollout=rollout, data=data, before=before, after=after, chosen=tuple(changed))


def _changed(verb: Verb, before: ClusterState, after: ClusterState) -> bool:
    """Whether the request means the cluster: a rollback also withdraws what was to be retried."""
    if verb is Verb.ROLLBACK:
        return after.back is not None and before.back != after.back
    return before != after


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


def _ask(wish: Preview, text: str) -> Answer:
    asked = wish.rollout.append(Kind.REQUEST, data=wish.data)
    return Answer(text=text, drive=not _heard(wish.rollout, asked))


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


def _fitting(
    rollout: Rollout, verb: Verb, clusters: Sequence[str], *, by: str, what: str
) -> Preview:
    """The request, of which every named cluster is changed; ``what`` says of which that is so."""
    wish = preview(rollout, verb, clusters, by=by)
    wrong = [name for name in clusters if name not in wish.chosen]
    if wrong:
        fitting = preview(rollout, verb, list(rollout.plan.targets), by=by).chosen
        stands = ", ".join(f"{name} is {standing(wish.before.clusters[name])}" for name in wrong)
        raise UsageError(
            f"{verb} does not fit {', '.join(wrong)}",
            why=f"{stands}; of this rollout {what}: {', '.join(fitting) or 'none'}",
            next_step=f"invoke rollouts.show {rollout.id}",
        )
    return wish


def _require_known(rollout: Rollout, plan: Plan, clusters: Sequence[str]) -> None:
    unknown = [name for name in clusters if name not in plan.targets]
    if unknown:
        raise UnknownCluster(
            f"rollout {rollout.id} has no cluster {', '.join(unknown)}",
            why=f"it has {', '.join(plan.targets)}",
            next_step=f"invoke rollouts.show {rollout.id}",
        )


def _named(names: Sequence[str], *, most: int = 8) -> str:
    rest = len(names) - most
    shown = ", ".join(names[:most])
    return shown if rest <= 0 else f"{shown} and {rest} more"
