"""What the end of a run means for its caller: nothing, or an error with the documented code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rayfleet.errors import Declined, Locked, PartialFailure, RayfleetError, Unreachable
from rayfleet.job.restore.report import NotRestored
from rayfleet.rollout.model import Plan
from rayfleet.rollout.signals import Interrupted
from rayfleet.rollout.state import BAD, FAILURES, ClusterState, Outcome, Result, State
from rayfleet.rollout.tell.facts import Standing, lost_jobs, standing

SHOWN = 12  # clusters in a message


class Paused(RayfleetError):
    """The rollout waits for somebody to say how it goes on."""

    exit_code = 6


def raise_for(plan: Plan, state: State, *, interrupted: bool = False) -> None:
    """Raise what the end of a run means; return when all is done and well.

    Raises:
        PartialFailure: 2, clusters have failed.
        Declined: 3, it was aborted.
        Unreachable: 4, all that failed could not be reached, and nothing of them was changed.
        Locked: 5, all that failed are held by others.
        Paused: 6.
        NotRestored: 7, the clusters are well, jobs were not given back.
        Interrupted: 130, paused because a signal asked for it.
    """
    if state.result is Result.WITHOUT_JOBS:
        raise without_jobs(plan, state.clusters)
    if state.result is Result.FAILED:
        raise _failure(plan, state)
    if state.result is Result.ABORTED:
        raise Declined(
            f"rollout {plan.id} was aborted",
            why=_lines(_standing(plan, state)),
            next_step=_restoring(plan, state.clusters) or f"invoke rollouts.show {plan.id}",
        )
    if state.result is None:
        raise _paused(plan, state, interrupted=interrupted)


def failed(state: State) -> dict[str, ClusterState]:
    """The clusters of which a way has failed, whatever came after, save for those left out."""
    return {
        name: cluster
        for name, cluster in state.clusters.items()
        if _outcomes(cluster) & FAILURES and Outcome.SKIPPED not in _outcomes(cluster)
    }


def _failure(plan: Plan, state: State) -> RayfleetError:
    failures = failed(state)
    outcomes = {each.forward.outcome for each in failures.values() if each.forward}
    codes = {_code(each) for each in failures.values()}
    kind: type[RayfleetError] = PartialFailure
    if outcomes == {Outcome.LOCKED}:
        kind = Locked
    elif outcomes == {Outcome.UNTOUCHED} and codes == {Unreachable.exit_code}:
        kind = Unreachable
    return kind(
        f"{len(failures)} of {len(state.clusters)} clusters failed",
        why=_lines([*_causes(plan, failures), *_standing(plan, state, told=failures)]),
        next_step="; ".join(
            (
                f"invoke rollouts.retry {plan.id} (or skip, rollback)",
                *filter(None, [_restoring(plan, state.clusters)]),
                f"details: invoke rollouts.show {plan.id}",
            )
        ),
    )


def without_jobs(plan: Plan, clusters: Mapping[str, ClusterState]) -> NotRestored:
    """The error that names the jobs that ``clusters`` are left without, and what restores them."""
    lost = {name: jobs for name in clusters if (jobs := lost_jobs(plan, name, clusters[name])[0])}
    down = [name for name in lost if clusters[name].left_changed]
    well = f"{_names(down)} may be down" if down else "the clusters are well"
    return NotRestored(
        f"{well}, {'and' if down else 'but'} jobs were not given back",
        why=_lines([f"{name}: {', '.join(jobs)}" for name, jobs in lost.items()]),
        next_step=_restoring(plan, clusters) or f"invoke rollouts.show {plan.id}",
    )


def _restoring(plan: Plan, clusters: Mapping[str, ClusterState]) -> str:
    """The commands that give back the jobs which ``clusters`` are left without."""
    told = (lost_jobs(plan, name, cluster)[1] for name, cluster in clusters.items())
    return "; ".join(filter(None, dict.fromkeys(told)))


def _paused(plan: Plan, state: State, *, interrupted: bool) -> RayfleetError:
    undecided = {
        name: cluster
        for name, cluster in state.clusters.items()
        if Outcome.INCONCLUSIVE in _outcomes(cluster)
    }
    resume = f"invoke rollouts.resume {plan.id}"
    if undecided:
        resume += f" (looks again), or: invoke rollouts.promote {plan.id} (takes it as passed)"
    kind = Interrupted if interrupted else Paused
    bad = failed(state)
    known = {**undecided, **bad}
    lines = [*_causes(plan, undecided)]
    lines += _causes(plan, {name: bad[name] for name in bad if name not in undecided})
    lines += _standing(plan, state, told=known)
    reason = state.paused or "its process has ended"
    return kind(f"rollout {plan.id} is paused", why=reason + _lines(lines), next_step=resume)


def _causes(plan: Plan, clusters: Mapping[str, ClusterState]) -> list[str]:
    lines = [f"{name}: {_cause(plan, name, cluster)}" for name, cluster in clusters.items()]
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"and {rest} more"]


def _cause(plan: Plan, name: str, cluster: ClusterState) -> str:
    """What went wrong on the way forward, and what became of the rollback."""
    way = cluster.forward
    if way is None:
        return ""
    text = _error_text(way.error)
    if way.outcome is Outcome.LOCKED:
        text = f"{text} (untouched)"
    elif way.outcome is Outcome.UNTOUCHED:
        text = f"{way.step}: {text} (untouched)"
    elif way.step is not None:
        text = f"{way.step}: {text}"
    return "; ".join(filter(None, (text, _rollback(plan, name, cluster))))


def _rollback(plan: Plan, name: str, cluster: ClusterState) -> str:
    """What became of the rollback of a cluster, empty when there was none that has ended."""
    back = cluster.back
    if back is None or back.outcome is None:
        return ""
    if back.outcome is Outcome.DONE:
        return "rolled back"
    if back.outcome is Outcome.WITHOUT_JOBS:
        jobs = ", ".join(lost_jobs(plan, name, cluster)[0])
        return f"rolled back, but jobs were not given back: {jobs}"
    words = {Outcome.INCONCLUSIVE: "is inconclusive", Outcome.SKIPPED: "was left out"}
    how = words.get(back.outcome, "failed as well" if _failed_before(cluster) else "failed")
    return f"the rollback {how}: {_error_text(back.error)}"


def _failed_before(cluster: ClusterState) -> bool:
    return cluster.forward is not None and cluster.forward.outcome in BAD


def _error_text(error: object) -> str:
    data = error if isinstance(error, dict) else {}
    what, why = str(data.get("what", "")), str(data.get("why", ""))
    return " ".join((f"{what}: {why}" if why else what).split())


def _code(cluster: ClusterState) -> object:
    return cluster.forward.error.get("code") if cluster.forward is not None else None


def _outcomes(cluster: ClusterState) -> set[Outcome | None]:
    return {way.outcome for way in (cluster.forward, cluster.back) if way is not None}


def _standing(plan: Plan, state: State, *, told: Collection[str] = ()) -> list[str]:
    """One line each for who is done and who was never begun, and one for each cluster that is
    neither, save for those that were ``told`` of."""
    done: list[str] = []
    never: list[str] = []
    lines: list[str] = []
    for name, cluster in state.clusters.items():
        where = standing(cluster)
        if name not in told and where not in {Standing.DONE, Standing.SKIPPED, Standing.WAITING}:
            text = _rollback(plan, name, cluster) or where.value
            lost = ", ".join(lost_jobs(plan, name, cluster)[0])
            lines.append(f"{name}: {text}" + (f": {lost}" if lost and lost not in text else ""))
        if cluster.forward is None:
            never.append(name)
        elif where in {Standing.DONE, Standing.WITHOUT_JOBS}:
            done.append(name)
    lines += [f"done: {_names(done)}"] if done else []
    return [*lines, f"not touched: {_names(never)}"] if never else lines


def _names(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:SHOWN])} and {rest} more"


def _lines(lines: Iterable[str]) -> str:
    return "\n  ".join(["", *lines])
