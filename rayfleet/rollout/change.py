"""Start or stop several clusters: one before many, nothing after a failure, no running job
killed unsaid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.config import read_launch_config
from rayfleet.cluster.fanout import fan_out
from rayfleet.cluster.health import Observed
from rayfleet.cluster.lifecycle import Lifecycle, brief
from rayfleet.cluster.nodes import Nodes
from rayfleet.cluster.started import last_started
from rayfleet.console import Console
from rayfleet.errors import Declined, Locked, PartialFailure, RayfleetError, UsageError
from rayfleet.fleet.model import Cluster
from rayfleet.job.redaction import redacted
from rayfleet.rollout.held import refuse_held
from rayfleet.rollout.order import batches
from rayfleet.worker.care import take_along, tell_who_stays

if TYPE_CHECKING:
    from rayfleet.job.model import Job

ASK_TIMEOUT = 60.0  # seconds to look at one cluster
CHANGE_TIMEOUT = 3600.0  # seconds to change one cluster, its gates included
LOOK_LIMIT = 8  # clusters looked at at once


class Action(StrEnum):
    """What is done with a cluster."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One cluster in a plan. ``jobs`` are those that the change kills; ``jobs_problem`` says
    why they could not be listed (which is not the same as "no jobs"). ``kill_all``: those that
    come until then may die as well, the operator has said so."""

    cluster: Cluster
    action: Action
    why: str
    jobs: tuple[Job, ...] = ()
    jobs_problem: str = ""
    kill_all: bool = False

    @property
    def kills(self) -> bool:
        """Whether jobs die by it, as far as can be known."""
        return bool(self.jobs or self.jobs_problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the change of one cluster ended. ``error`` is None when it went well."""

    cluster: str
    action: Action
    error: RayfleetError | None = None


def run(
    life: Lifecycle,
    clusters: Sequence[Cluster],
    wanted: Action,
    *,
    dry_run: bool,
    yes: bool,
    parallel: int,
) -> None:
    """Plan ``wanted`` for ``clusters``, show it, ask if jobs would die, carry it out.

    Raises:
        UsageError: a cluster has no generated config.
        Locked: a rollout has one of the clusters.
        Declined: jobs would die and nobody said yes.
        PartialFailure: a cluster failed; nothing was started after it.
    """
    refuse_held(life.project, clusters)
    names = " ".join(f"--cluster {cluster.name}" for cluster in clusters)
    command = f"invoke {wanted} {names}"
    targets = plan(life, clusters, wanted)
    if dry_run:
        show(targets, life.console)
        return
    confirm(targets, life.console, yes=yes, command=command)
    targets = tuple(replace(target, kill_all=yes) for target in targets)
    what = clusters[0].name if len(clusters) == 1 else f"{len(clusters)} clusters"
    with life.console.phase(f"{wanted} {what}"):
        carry_out(life, targets, parallel=parallel, command=command)


def plan(life: Lifecycle, clusters: Sequence[Cluster], wanted: Action) -> tuple[Target, ...]:
    """Look at every cluster at once and say what ``wanted`` means for it, in fleet order."""
    jobs = {cluster.name: partial(_look, life, cluster) for cluster in clusters}
    seen = fan_out(jobs, limit=LOOK_LIMIT, timeout=ASK_TIMEOUT, what="the head")
    return tuple(_target(cluster, wanted, seen[cluster.name]) for cluster in clusters)


def confirm(targets: Sequence[Target], console: Console, *, yes: bool, command: str) -> None:
    """Show what will be touched and which jobs die; ask unless ``yes``.

    Raises:
        Declined: jobs would die and nobody said yes.
    """
    show(targets, console)
    killing = [target for target in targets if target.kills]
    if not killing:
        return
    count = sum(len(target.jobs) for target in killing)
    unknown = [target.cluster.name for target in killing if target.jobs_problem]
    facts = []
    if count:
        facts.append(f"{count} running job{'s' if count > 1 else ''} will be killed")
    if unknown:
        facts.append(f"the jobs of {', '.join(unknown)} cannot be listed and may be killed")
    asked = f"{'; '.join(facts)}. Go on?"
    console.confirm(asked, yes=yes, refused_next=f"{command} --yes")


def show(targets: Sequence[Target], console: Console) -> None:
    """Narrate the plan: one line per cluster, one per job that it kills."""
    for target in targets:
        cluster = target.cluster
        where = f"{cluster.identity}, {cluster.zone}"
        console.say(f"{target.action} {cluster.name} ({where}): {target.why}")
        for job in target.jobs:
            entrypoint = " ".join(redacted(job.entrypoint).split())[:80]
            console.say(f"  kills job {job.name} of {job.owner}: {entrypoint}")
        if target.jobs_problem:
            console.say(f"  its jobs cannot be listed: {target.jobs_problem}")


def carry_out(
    life: Lifecycle, targets: Sequence[Target], *, parallel: int, command: str
) -> tuple[Outcome, ...]:
    """Do what the plan says, group by group; stop at the first group with a failure.

    Raises:
        PartialFailure: with the outcome of every cluster; those never tried are named.
        Locked: the same, where rollouts or other runs have all that failed.
    """
    todo = {t.cluster.name: t for t in targets if t.action is not Action.NOTHING}
    done: list[Outcome] = []
    for group in batches(life.fleet, [t.cluster for t in todo.values()], parallel=parallel):
        work = {c.name: partial(_change, life, todo[c.name]) for c in group}
        results = fan_out(work, limit=parallel, timeout=CHANGE_TIMEOUT, what="the change")
        for name, result in results.items():
            error = result if isinstance(result, RayfleetError) else None
            done.append(Outcome(cluster=name, action=todo[name].action, error=error))
        if any(outcome.error for outcome in done):
            raise _failure(done, list(todo), command)
    return tuple(done)


def _failure(done: Sequence[Outcome], names: Sequence[str], command: str) -> RayfleetError:
    failures = [outcome.error for outcome in done if outcome.error]
    finished = [outcome.cluster for outcome in done if not outcome.error]
    untried = [name for name in names if name not in {outcome.cluster for outcome in done}]
    lines = [f"{error.what}: {error.why}" if error.why else error.what for error in failures]
    if finished:
        lines.append(f"done: {', '.join(finished)}")
    if untried:
        lines.append(f"not touched: {', '.join(untried)}")
    own_step = failures[0].next_step if len(failures) == 1 else ""
    locked = all(isinstance(error, Locked) for error in failures)
    return (Locked if locked else PartialFailure)(
        f"{len(failures)} of {len(names)} clusters failed",
        why="\n  ".join(["", *lines]),
        next_step=own_step or command,
    )


def _change(life: Lifecycle, target: Target) -> None:
    actions: dict[Action, Callable[[Cluster], object]] = {
        Action.START: life.start,
        Action.STOP: life.stop,
    }
    cluster = target.cluster
    _spare_jobs(life, target)
    actions[target.action](cluster)
    follow = take_along if target.action is Action.START else tell_who_stays
    config = read_launch_config(life.fleet, cluster)
    follow(cluster.name, config, lambda text: life.console.event(f"{cluster.name}: {text}"))


def _spare_jobs(life: Lifecycle, target: Target) -> None:
    """Right before a head goes or Ray on it is started again: see that no job dies unsaid."""
    cluster = target.cluster
    node = Nodes(read_launch_config(life.fleet, cluster)).head()
    if not node:
        return
    try:
        jobs = _running_jobs(life, cluster)
    except RayfleetError as error:
        # One that was never up whole has no jobs.
        was_up = last_started(life.project.state, cluster).node == node
        require_spared(target, (), silent=brief(error) if was_up else "")
    else:
        require_spared(target, tuple(job.name for job in jobs))


def require_spared(target: Target, jobs: Sequence[str], *, silent: str = "") -> None:
    """See that the change of a head ends no job of ``jobs`` that nobody was asked about; ``silent``
    says why it does not tell them. Pure.

    Raises:
        Declined: a stop would kill jobs that came since the operator was asked.
        UsageError: a start would end jobs, or the head does not tell whether it has some.
    """
    name = target.cluster.name
    listed = {job.name for job in target.jobs}
    dying = ", ".join(job for job in jobs if job not in listed)
    if target.action is Action.START and (dying or silent):
        repair = " --unhealthy repair" if silent else ""
        tells = "does not tell its jobs" if silent else "has jobs"
        raise UsageError(
            f"{name} is not started again: its head {tells}",
            why=f"a start would end {dying or f'those that it has; {silent}'}",
            next_step=f"invoke restart --cluster {name}{repair}",
        )
    if target.action is Action.STOP and dying and not (target.kill_all or target.jobs_problem):
        raise Declined(
            f"{name} is not stopped: more jobs came since you were asked",
            why=f"it would kill {dying}",
            next_step=f"invoke stop --cluster {name}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    observed: Observed
    exists: bool
    jobs: tuple[Job, ...]
    jobs_problem: str


def _look(life: Lifecycle, cluster: Cluster) -> _Seen:
    observed = life.observe(cluster)
    if not observed.head:
        return _Seen(observed=observed, exists=bool(life.nodes(cluster)), jobs=(), jobs_problem="")
    try:
        jobs, problem = _running_jobs(life, cluster), ""
    except RayfleetError as error:
        jobs, problem = (), brief(error)
    return _Seen(observed=observed, exists=True, jobs=jobs, jobs_problem=problem)


def _running_jobs(life: Lifecycle, cluster: Cluster) -> tuple[Job, ...]:
    from rayfleet.job.connection import open_jobs

    with open_jobs(life.project, life.fleet, cluster) as jobs:
        return jobs.running()


def _target(cluster: Cluster, wanted: Action, seen: _Seen | RayfleetError) -> Target:
    if isinstance(seen, RayfleetError):
        raise seen
    observed = seen.observed
    action, why = decide(wanted, observed, exists=seen.exists)
    dies = action is Action.STOP
    return Target(
        cluster=cluster,
        action=action,
        why=why,
        jobs=seen.jobs if dies else (),
        jobs_problem=seen.jobs_problem if dies else "",
    )


def decide(wanted: Action, observed: Observed, *, exists: bool) -> tuple[Action, str]:
    """What ``wanted`` means for a cluster that is as ``observed``, and why. Pure."""
    failing = "; ".join(observed.failing())
    if not exists:
        nothing_there = wanted is Action.STOP
        return (Action.NOTHING if nothing_there else Action.START), "it is not running"
    if wanted is Action.STOP:
        return Action.STOP, failing if failing else f"it has {observed.joined} workers"
    return (Action.START, failing) if failing else (Action.NOTHING, "it is healthy")
