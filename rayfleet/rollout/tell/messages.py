"""What a channel of people is told of a rollout, before and after. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rayfleet.rollout.model import Direction, Plan
from rayfleet.rollout.state import State
from rayfleet.rollout.tell.facts import Failure, failures, in_order, summary
from rayfleet.rollout.tell.jobs import job_fates
from rayfleet.rollout.tell.words import count, cut, one_line, safe, spell

LONGEST_LINE = 300
MOST_FAILURES = 10
MOST_OWNERS = 20


def before(plan: Plan) -> str:
    """What is about to happen: clusters in waves, running jobs by owner, what will be killed."""
    return _text(_before(plan))


def taken_up(plan: Plan, state: State, by: str) -> str:
    """That a rollout goes on."""
    return f"rollout {plan.id} goes on, by {one_line(by)}: {summary(state)}"


def after(plan: Plan, state: State, *, seconds: float, report: str) -> str:
    """How a run has ended: result, time, failures with the next command, jobs."""
    return _text(_after(plan, state, seconds, report))


def _before(plan: Plan) -> Iterator[str]:
    clusters, waves = count(len(plan.targets), "cluster"), count(len(plan.waves), "wave")
    took = f", about {spell(plan.estimate)}" if plan.estimate else ""
    yield f"rollout {plan.id} of {one_line(plan.fleet)} begins: {clusters} in {waves}{took}"
    yield f"by {one_line(plan.operator)}: {one_line(safe(plan.command))}"
    for number, wave in enumerate(plan.waves, 1):
        canary = " (canary)" if wave.canary and wave.name != "canary" else ""
        yield f"wave {number}, {wave.name}{canary}: {', '.join(wave.clusters)}"
    yield from _jobs_before(plan)


def _jobs_before(plan: Plan) -> Iterator[str]:
    running = sum(len(target.jobs) for target in plan.targets.values())
    if not plan.settings.preserve_jobs:
        yield f"--no-preserve-jobs: {count(running, 'running job')} WILL BE KILLED"
    elif running:
        yield f"{count(running, 'running job')}: stopped, and given back after the restart"
    owners: dict[str, list[str]] = {}
    for target in in_order(plan):
        for job in target.jobs:
            owner = one_line(safe(job.owner)) or "unknown"
            owners.setdefault(owner, []).append(f"{one_line(safe(job.id))} on {target.cluster}")
    for owner in list(owners)[:MOST_OWNERS]:
        yield f"- {owner}: {', '.join(owners[owner])}"
    if len(owners) > MOST_OWNERS:
        yield f"- and {count(len(owners) - MOST_OWNERS, 'more owner')}"
    unknown = [target.cluster for target in in_order(plan) if target.jobs_problem]
    if unknown:
        yield f"jobs that could not be listed, and may be killed: {', '.join(unknown)}"
    for target in in_order(plan):
        for line in target.unpreservable:
            yield f"will be killed on {target.cluster}: {one_line(safe(line))}"


def _after(plan: Plan, state: State, seconds: float, report: str) -> Iterator[str]:
    if state.result is not None:
        how = state.result.value
    else:
        how = f"paused ({one_line(state.paused)})" if state.paused else "was broken off"
    yield f"rollout {plan.id}: {how} after {spell(seconds)}: {summary(state)}"
    wrong = failures(plan, state)
    for failure in wrong[:MOST_FAILURES]:
        yield from _failure(failure)
    if len(wrong) > MOST_FAILURES:
        yield f"and {count(len(wrong) - MOST_FAILURES, 'more failure')}"
    fates = job_fates(plan, state)
    lost = [fate for fate in fates if fate.lost]
    if fates:
        kept = len(fates) - len(lost)
        yield f"{count(len(fates), 'job')}: {kept} kept, {len(lost)} not"
    for fate in lost[:MOST_OWNERS]:
        reason = f" ({fate.reason})" if fate.reason else ""
        yield f"- {fate.owner}: {fate.job} on {fate.cluster}: {fate.outcome}{reason}"
    if state.result is None:
        yield f"next: invoke rollouts.resume {plan.id}"
    if report:
        yield f"report: {report}"


def _failure(failure: Failure) -> Iterator[str]:
    back = "back: " if failure.direction is Direction.BACK else ""
    step = f" ({back}{failure.step})" if failure.step else ""
    cause = ": ".join(one_line(part) for part in (failure.what, failure.why) if part)
    yield f"{failure.cluster}{step}: {failure.standing}: {cause}"
    yield f"  next: {one_line(failure.next)}"


def _text(lines: Iterator[str]) -> str:
    return "\n".join(cut(line, LONGEST_LINE) for line in lines)


def fitting(text: str, room: int) -> str:
    """``text`` in at most ``room`` code units of UTF-16: whole lines, then how many are left out.

    That is how chats count, and never less than characters.
    """
    if _units(text) <= room:
        return text
    lines = text.splitlines()
    for kept in range(len(lines) - 1, 0, -1):
        left = count(len(lines) - kept, "more line")
        short = "\n".join([*lines[:kept], f"and {left}"])
        if _units(short) <= room:
            return short
    return cut(text, room // 2)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2
