"""The report of a rollout as text, and both reports on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rayfleet.files import write_atomically
from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.model import Direction, Plan, Target
from rayfleet.rollout.state import State
from rayfleet.rollout.tell.events import result_word
from rayfleet.rollout.tell.facts import (
    Failure,
    cluster_seconds,
    failures,
    in_order,
    standing,
    summary,
    waves_of,
)
from rayfleet.rollout.tell.images import image_text
from rayfleet.rollout.tell.jobs import JobFate, fates_of, unpreserved
from rayfleet.rollout.tell.page import html_report
from rayfleet.rollout.tell.timeline import Fate, Timeline, Try, down_seconds, trace
from rayfleet.rollout.tell.words import count, one_line, safe, spell

TEXT_NAME = "report.txt"
HTML_NAME = "report.html"


def write_reports(folder: Path, plan: Plan, state: State, records: Sequence[Record]) -> Path:
    """Write both reports into ``folder``, for their owner only; gives the path of the page.

    Raises:
        PrerequisiteMissing: the disk is full or the folder cannot be written.
    """
    write_atomically(folder / TEXT_NAME, text_report(plan, state, records), mode=0o600)
    write_atomically(folder / HTML_NAME, html_report(plan, state, records), mode=0o600)
    return folder / HTML_NAME


def text_report(plan: Plan, state: State, records: Sequence[Record]) -> str:
    """The whole rollout as text: failures first, then every cluster with its steps and jobs."""
    timeline = trace(records)
    lines = [*_head(plan, state, timeline)]
    wrong = failures(plan, state)
    if wrong:
        lines += ["", "what needs a person"]
        lines += [line for failure in wrong for line in _failure(failure)]
    waves = waves_of(plan)
    for target in in_order(plan):
        lines += ["", *_cluster(plan, state, target, waves[target.cluster], timeline)]
    if plan.skipped:
        lines += ["", "left alone"]
        lines += [f"  {skipped.cluster}: {one_line(skipped.why)}" for skipped in plan.skipped]
    return "\n".join(lines) + "\n"


def _head(plan: Plan, state: State, timeline: Timeline) -> Iterator[str]:
    yield f"rollout {plan.id}: {result_word(state)}"
    if state.paused:
        yield f"  paused     {one_line(state.paused)}"
    yield f"  clusters   {summary(state)}"
    if timeline.sessions:
        begun, ended = timeline.sessions[0].begun, timeline.sessions[-1].ended
        span = f"{begun:%Y-%m-%d %H:%M:%S} to {ended:%Y-%m-%d %H:%M:%S} UTC"
        yield f"  time       {span} ({spell(timeline.seconds)})"
    yield f"  operator   {one_line(plan.operator)}"
    yield f"  fleet      {one_line(plan.fleet)}"
    yield f"  command    {one_line(safe(plan.command))}"
    yield f"  rayfleet   {one_line(plan.tool)}"
    if len(timeline.sessions) > 1:
        for session in timeline.sessions:
            how = one_line(session.end) or "its process was killed"
            took = spell((session.ended - session.begun).total_seconds())
            yield f"  run        {session.begun:%H:%M:%S}, {took}, {one_line(session.by)}: {how}"


def _failure(failure: Failure) -> Iterator[str]:
    back = "back: " if failure.direction is Direction.BACK else ""
    step = f" ({back}{failure.step})" if failure.step else ""
    yield f"  {failure.cluster}{step}: {failure.standing}"
    yield f"    what: {one_line(failure.what)}"
    if failure.why:
        yield from _indented("    why:  ", failure.why)
    yield f"    next: {one_line(failure.next)}"


def _indented(label: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.strip().splitlines()):
        yield f"{label if number == 0 else ' ' * len(label)}{line.rstrip()}"


def _cluster(
    plan: Plan, state: State, target: Target, wave: int, timeline: Timeline
) -> Iterator[str]:
    cluster = state.clusters[target.cluster]
    tries = timeline.lanes.get(target.cluster, ())
    now = timeline.sessions[-1].ended if timeline.sessions else plan.created
    took, down = cluster_seconds(cluster, now), down_seconds(tries)
    times = [f"after {spell(took)}"] if took is not None else []
    times += [f"{spell(down)} without a head"] if down is not None else []
    facts = f"{standing(cluster)}{' ' if times else ''}{', '.join(times)}"
    yield f"{target.cluster} ({target.zone}, wave {wave + 1} {plan.waves[wave].name}): {facts}"
    yield f"  image {image_text(target, standing(cluster))}"
    for each in tries:
        yield f"  {_try(each, timeline)}"
    fates = tuple(fates_of(plan, target, cluster))
    if fates:
        yield f"  {_jobs_line(fates)}"
        yield from (f"    {_job(fate)}" for fate in fates)
    if target.jobs_problem:
        yield f"  its jobs could not be listed: {one_line(safe(target.jobs_problem))}"
    yield from (f"  never preserved: {line}" for line in unpreserved(target, cluster))


def _try(each: Try, timeline: Timeline) -> str:
    since = (each.begun - timeline.sessions[0].begun).total_seconds() if timeline.sessions else 0.0
    back = "back: " if each.direction is Direction.BACK else ""
    text = f"{since:8.1f} s  {back + each.step:<18} {spell(each.seconds):>12}"
    if each.fate is not Fate.DONE:
        text += f"  {each.fate}{f': {one_line(safe(each.why))}' if each.why else ''}"
    return text + (f"  (try {each.number})" if each.number > 1 else "")


def _job(fate: JobFate) -> str:
    reason = f" ({fate.reason})" if fate.reason else ""
    return f"{fate.job} of {fate.owner}: {fate.before} -> {fate.outcome}{reason}"


def _jobs_line(fates: Sequence[JobFate]) -> str:
    lost = sum(fate.lost for fate in fates)
    return count(len(fates), "job") + (f", {lost} not given back" if lost else ", none lost")
