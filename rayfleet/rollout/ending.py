"""What the end of a run means for its caller: nothing, or an error with the documented code."""

from __future__ import annotations

from collections.abc import Iterable

from rayfleet.errors import Declined, Locked, PartialFailure, RayfleetError, Unreachable
from rayfleet.job.restore.report import NotRestored
from rayfleet.rollout.model import Plan, Step
from rayfleet.rollout.signals import Interrupted
from rayfleet.rollout.state import FAILURES, GOOD, ClusterState, Outcome, Result, State

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
        raise _without_jobs(plan, state)
    if state.result is Result.FAILED:
        raise _failure(plan, state)
    if state.result is Result.ABORTED:
        raise Declined(
            f"rollout {plan.id} was aborted",
            why=_lines(_standing(state)),
            next_step=f"invoke rollouts.show {plan.id}",
        )
    if state.result is None:
        raise _paused(plan, state, interrupted=interrupted)


def failed(state: State) -> dict[str, ClusterState]:
    """The clusters whose way forward has failed, whatever came after."""
    return {
        name: cluster
        for name, cluster in state.clusters.items()
        if cluster.forward is not None and cluster.forward.outcome in FAILURES
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
        why=_lines([*_causes(failures), *_standing(state)]),
        next_step=f"invoke rollouts.retry {plan.id} (or skip, rollback); "
        f"details: invoke rollouts.show {plan.id}",
    )


def _without_jobs(plan: Plan, state: State) -> RayfleetError:
    lines, following = [], ""
    for name, cluster in state.clusters.items():
        output = cluster.forward.outputs.get(Step.WATCH, {}) if cluster.forward else {}
        lost = output.get("lost")
        if isinstance(lost, list | tuple) and lost:
            lines.append(f"{name}: {', '.join(map(str, lost))}")
            following = following or str(output.get("next") or "")
    return NotRestored(
        "the clusters are well, but jobs were not given back",
        why=_lines(lines),
        next_step=following or f"invoke rollouts.show {plan.id}",
    )


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
    lines = [*_causes(undecided), *_causes(failed(state)), *_standing(state)]
    reason = state.paused or "its process has ended"
    return kind(f"rollout {plan.id} is paused", why=reason + _lines(lines), next_step=resume)


def _causes(clusters: dict[str, ClusterState]) -> list[str]:
    lines = [f"{name}: {_cause(cluster)}" for name, cluster in clusters.items()]
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"and {rest} more"]


def _cause(cluster: ClusterState) -> str:
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
    back = cluster.back
    if back is None or back.outcome is None:
        return text
    if back.outcome is Outcome.FAILED:
        return f"{text}; the way back failed as well: {_error_text(back.error)}"
    return f"{text}; rolled back"


def _error_text(error: object) -> str:
    data = error if isinstance(error, dict) else {}
    what, why = str(data.get("what", "")), str(data.get("why", ""))
    return " ".join((f"{what}: {why}" if why else what).split())


def _code(cluster: ClusterState) -> object:
    return cluster.forward.error.get("code") if cluster.forward is not None else None


def _outcomes(cluster: ClusterState) -> set[Outcome | None]:
    return {way.outcome for way in (cluster.forward, cluster.back) if way is not None}


def _standing(state: State) -> list[str]:
    """One line each: who is done, who was never begun."""
    done = [name for name, each in state.clusters.items() if _went(each) in GOOD]
    never = [name for name, each in state.clusters.items() if each.forward is None]
    lines = [f"done: {_names(done)}"] if done else []
    return [*lines, f"not touched: {_names(never)}"] if never else lines


def _went(cluster: ClusterState) -> Outcome | None:
    if cluster.back is not None or cluster.forward is None:
        return None
    return cluster.forward.outcome


def _names(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:SHOWN])} and {rest} more"


def _lines(lines: Iterable[str]) -> str:
    return "\n  ".join(["", *lines])
