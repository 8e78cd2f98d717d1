"""A plan as its operator reads it before saying yes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rayfleet.console import Console
from rayfleet.rollout.model import Change, OnFailure, Plan, Settings, Target, Unhealthy
from rayfleet.rollout.plan.document import plan_data
from rayfleet.rollout.tell.facts import in_order
from rayfleet.rollout.tell.words import count, one_line, spell

_AFTER = {
    OnFailure.STOP: "then it ends; what is done stays",
    OnFailure.ROLLBACK_FAILED: "then the failed ones go back to what they ran",
    OnFailure.ROLLBACK_ALL: "then every changed cluster goes back to what it ran",
}


def show_plan(plan: Plan, console: Console, *, as_json: bool) -> None:
    """Print ``plan`` on stdout: as text, or as one JSON document."""
    if as_json:
        console.json(plan_data(plan))
        return
    for line in plan_lines(plan):
        console.data(line)


def plan_lines(plan: Plan) -> Iterator[str]:
    """The whole plan, line by line, harmless on any screen: what happens, then what it costs."""
    for line in _lines(plan):
        indent = len(line) - len(line.lstrip(" "))
        # Owners and entrypoints come from whoever submitted the jobs.
        yield " " * indent + one_line(line)


def _lines(plan: Plan) -> Iterator[str]:
    if not plan.targets:
        yield from _left_alone(plan)
        yield "nothing to do"
        return
    yield f"rollout {plan.id}: {_headline(plan)}"
    yield ""
    for number, wave in enumerate(plan.waves, 1):
        canary = ", a canary" if wave.canary else ""
        yield f"{number}. {', '.join(wave.clusters)}{canary}"
    for target in in_order(plan):
        yield ""
        yield from _target_lines(target, plan.settings)
    yield ""
    yield from _left_alone(plan)
    yield from _summary(plan)


def _left_alone(plan: Plan) -> Iterator[str]:
    for one in plan.skipped:
        yield f"left alone: {one.cluster}, {one.why}"


def question(plan: Plan) -> str:
    """What is asked before a rollout begins."""
    whole = what(plan)
    asked = whole[0].upper() + whole[1:]
    dying = _dying(plan)
    return f"{asked} and KILL {dying}?" if dying else f"{asked}?"


def what(plan: Plan) -> str:
    """``restart 3 clusters and start 1 cluster``; a single one by its name."""
    changes = Counter(target.change for target in plan.targets.values())
    if len(plan.targets) == 1:
        (target,) = plan.targets.values()
        return f"{target.change} {target.cluster}"
    present = [change for change in Change if changes[change]]
    return " and ".join(f"{change} {count(changes[change], 'cluster')}" for change in present)


def _headline(plan: Plan) -> str:
    rules = plan.settings
    words = [f"{what(plan)} of {plan.fleet}", count(len(plan.waves), "wave")]
    words.append(f"{rules.parallel} at once")
    if rules.per_region:
        words.append(f"{rules.per_region} per region")
    return ", ".join(words)


def _target_lines(target: Target, rules: Settings) -> Iterator[str]:
    yield f"{target.change} {target.cluster}: {target.why}"
    yield f"  project {target.project}, zone {target.zone}"
    yield f"  {_machines(target)}"
    for line in target.changes:
        yield f"  {line}"
    for job in target.jobs:
        verb = "job" if rules.preserve_jobs else "KILLS job"
        yield f"  {verb} {job.id} of {job.owner}, {job.status}: {job.entrypoint}"
    for lost in target.unpreservable:
        yield f"  cannot be preserved: {lost}"
    if target.jobs_problem:
        yield f"  its jobs cannot be listed: {target.jobs_problem}"
    for line in _refusals(target, rules):
        yield f"  {line}"
    if target.estimate is not None:
        yield f"  takes about {spell(target.estimate)}"


def _machines(target: Target) -> str:
    if not target.head:
        return "no head"
    workers = ", ".join(f"{number} {kind}" for kind, number in sorted(target.workers.items()))
    return f"head {target.head}, workers {workers or ('not known' if target.trouble else 'none')}"


def _refusals(target: Target, rules: Settings) -> Iterator[str]:
    """Why a preflight is going to refuse the cluster, as far as is known now."""
    if target.image_problem:
        yield f"WILL FAIL before it is touched: {target.image_problem}"
    if not target.trouble:
        return
    lost = target.backup_problem if rules.preserve_jobs else ""
    if rules.unhealthy is Unhealthy.SKIP:
        yield f"will be skipped: {target.trouble}"
    elif rules.unhealthy is Unhealthy.FAIL or lost:
        yield f"WILL FAIL before it is touched: {'; '.join(filter(None, (target.trouble, lost)))}"
        how = "without its jobs" if target.backup_problem else "from its latest backup"
        flag = "--no-preserve-jobs " if target.backup_problem else ""
        yield f"  --unhealthy repair {flag}restarts it {how}, --unhealthy skip leaves it"
    else:
        jobs = "with the jobs of its latest backup" if rules.preserve_jobs else "without its jobs"
        yield f"will be repaired, {jobs}: {target.trouble}"


def _summary(plan: Plan) -> Iterator[str]:
    rules = plan.settings
    yield from _jobs_summary(plan)
    if rules.bake:
        yield f"bake: {spell(rules.bake)} after each wave"
    yield f"{_budget(rules)}, nothing new is begun, {_AFTER[rules.on_failure]}"
    without = [t.cluster for t in plan.targets.values() if _cannot_go_back(t)]
    if without:
        yield f"no way back: what {', '.join(without)} now runs with is not known here"
    if plan.estimate is not None:
        yield f"takes about {spell(plan.estimate)} in all, bakes included"
    else:
        yield "time: not known, no earlier rollout to learn from"


def _budget(rules: Settings) -> str:
    if not rules.max_failures and not rules.max_untouched:
        return "failures: with the first one"
    failed = count(rules.max_failures, "cluster")
    return (
        f"failures: when more than {failed} failed, or more than {rules.max_untouched} failed"
        " before anything of them was changed"
    )


def _cannot_go_back(target: Target) -> bool:
    return target.change is Change.RESTART and not target.previous


def _jobs_summary(plan: Plan) -> Iterator[str]:
    if dying := _dying(plan):
        yield f"--no-preserve-jobs: NO JOB IS KEPT. This kills {dying}"
    elif not plan.settings.preserve_jobs:
        yield "--no-preserve-jobs: NO JOB IS KEPT, and none runs now"
    else:
        jobs = sum(len(target.jobs) for target in plan.targets.values())
        owners = f" ({_owners(plan.targets.values())})" if jobs else ""
        fate = f"saved, stopped and given back{owners}" if jobs else "to be kept, as far as known"
        yield f"jobs: {count(jobs, 'job')} {fate}"
    lost = sum(len(target.unpreservable) for target in plan.targets.values())
    if lost:
        yield f"cannot be preserved: {count(lost, 'thing')} that nobody submitted as a job"


def _dying(plan: Plan) -> str:
    """What ``--no-preserve-jobs`` kills, in words; empty when jobs are kept or there are none."""
    if plan.settings.preserve_jobs:
        return ""
    targets = plan.targets.values()
    jobs = sum(len(target.jobs) for target in targets)
    unknown = [target.cluster for target in targets if target.jobs_problem]
    facts = [f"{count(jobs, 'job')} ({_owners(targets)})"] if jobs else []
    facts += [f"whatever runs on {', '.join(unknown)}, which cannot be listed"] if unknown else []
    return " and ".join(facts)


def _owners(targets: Iterable[Target]) -> str:
    """``kay 2, lee 1``: the owners of the jobs, those with most first."""
    found = Counter(job.owner for target in targets for job in target.jobs)
    return one_line(", ".join(f"{owner} {number}" for owner, number in found.most_common()))
