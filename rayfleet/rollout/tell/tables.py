"""The parts of the page around the timeline: failures, clusters, jobs, the plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.model import Direction
from rayfleet.rollout.tell.chart import Story, pill
from rayfleet.rollout.tell.facts import Failure, cluster_seconds, failures, in_order, standing
from rayfleet.rollout.tell.images import image_text, short
from rayfleet.rollout.tell.jobs import JobFate, fates_of, job_fates, unpreserved
from rayfleet.rollout.tell.markup import Child, Html, el
from rayfleet.rollout.tell.timeline import down_seconds
from rayfleet.rollout.tell.words import count, one_line, safe, spell

MOST_OPEN_PROBLEMS = 12

MOST_OPEN_ROWS = 60
"""Rows from which a table is folded away at first."""


def problems(story: Story) -> Html | None:
    """All that needs a person, with the next command."""
    wrong = failures(story.plan, story.state)
    if not wrong:
        return None
    return el(
        "section",
        el("h2", "What needs a person"),
        [_problem(story, failure) for failure in wrong[:MOST_OPEN_PROBLEMS]],
        _more_problems(story, wrong[MOST_OPEN_PROBLEMS:]),
        cls="problems",
    )


def _more_problems(story: Story, wrong: Sequence[Failure]) -> Html | None:
    if not wrong:
        return None
    return el(
        "details",
        el("summary", f"and {len(wrong)} more"),
        [_problem(story, failure) for failure in wrong],
    )


def _problem(story: Story, failure: Failure) -> Html:
    back = "on the way back, " if failure.direction is Direction.BACK else ""
    step = f"{back}{failure.step}" if failure.step else back.rstrip(", ")
    link = el("a", failure.cluster, href=f"#c{story.numbers[failure.cluster]}")
    return el(
        "article",
        el("h3", link, " ", el("span", step, cls="step"), " ", pill(failure.standing)),
        el("p", one_line(failure.what)),
        el("pre", failure.why.strip()) if failure.why.strip() else None,
        el("p", el("span", "next", cls="tag"), " ", el("code", one_line(failure.next)), cls="next"),
        cls="returned" if failure.standing.value.startswith("rolled back") else "",
    )


def clusters_table(story: Story) -> Html:
    """One row per cluster."""
    rows = [_cluster(story, number) for number in range(len(story.plan.waves))]
    heads = (
        ("cluster", ""),
        ("wave", "wide"),
        ("outcome", ""),
        ("time", "num"),
        ("down", "num wide"),
        ("jobs", "num"),
        ("image", "wide"),
    )
    return _folded("Clusters", heads, [row for wave in rows for row in wave], "clusters")


def _cluster(story: Story, number: int) -> Iterator[Html]:
    plan, state, timeline = story.plan, story.state, story.timeline
    wave = plan.waves[number]
    end = timeline.sessions[-1].ended if timeline.sessions else plan.created
    for name in wave.clusters:
        target, cluster = plan.targets[name], state.clusters[name]
        where = standing(cluster)
        took = cluster_seconds(cluster, end)
        down = down_seconds(timeline.lanes.get(name, ()))
        fates = tuple(fates_of(plan, target, cluster))
        lost = sum(fate.lost for fate in fates)
        jobs = str(len(fates)) if fates else ""
        yield el(
            "tr",
            el("th", el("a", name, href=f"#c{story.numbers[name]}"), scope="row"),
            el("td", f"{number + 1} {wave.name}", cls="wide"),
            el("td", pill(where)),
            el("td", "" if took is None else spell(took), cls="num"),
            el("td", "" if down is None else spell(down), cls="num wide"),
            el("td", f"{jobs}, {lost} lost" if lost else jobs, cls="num bad" if lost else "num"),
            el("td", el("code", image_text(target, where)), cls="wide"),
        )


def jobs_table(story: Story) -> Html | None:
    """One row per job, those that somebody has to look after first."""
    fates = sorted(job_fates(story.plan, story.state), key=lambda fate: not fate.lost)
    others = [
        (target.cluster, line)
        for target in in_order(story.plan)
        for line in unpreserved(target, story.state.clusters[target.cluster])
    ]
    unknown = [
        (target.cluster, target.jobs_problem)
        for target in in_order(story.plan)
        if target.jobs_problem
    ]
    if not fates and not others and not unknown:
        return None
    rows = [_job(story, fate) for fate in fates]
    rows += [_other(story, name, line, "not preserved", "") for name, line in others]
    rows += [_other(story, name, "its jobs", "could not be listed", line) for name, line in unknown]
    heads = (
        ("job", ""),
        ("owner", "wide"),
        ("cluster", "wide"),
        ("before", "wide"),
        ("outcome", ""),
    )
    return _folded("Jobs", heads, rows, "jobs")


def _job(story: Story, fate: JobFate) -> Html:
    reason = el("small", fate.reason) if fate.reason else None
    return el(
        "tr",
        el(
            "th",
            fate.job,
            el("code", fate.entrypoint) if fate.entrypoint else None,
            el("small", f"{fate.owner}, {fate.cluster}", cls="narrow"),
            scope="row",
        ),
        el("td", fate.owner, cls="wide"),
        el("td", el("a", fate.cluster, href=f"#c{story.numbers[fate.cluster]}"), cls="wide"),
        el("td", fate.before, cls="wide"),
        el("td", el("span", fate.outcome, cls=f"pill {'bad' if fate.lost else 'good'}"), reason),
    )


def _other(story: Story, cluster: str, what: str, outcome: str, why: str) -> Html:
    reason = el("small", one_line(safe(why))) if why else None
    return el(
        "tr",
        el("th", one_line(safe(what)), el("small", cluster, cls="narrow"), scope="row"),
        el("td", "", cls="wide"),
        el("td", el("a", cluster, href=f"#c{story.numbers[cluster]}"), cls="wide"),
        el("td", "", cls="wide"),
        el("td", el("span", outcome, cls="pill warn"), reason),
    )


def _folded(title: str, heads: Sequence[tuple[str, str]], rows: Sequence[Html], name: str) -> Html:
    head = el("tr", [el("th", text, scope="col", cls=kind) for text, kind in heads])
    table = el("table", el("thead", head), el("tbody", rows), cls=name)
    return el(
        "section",
        el(
            "details",
            el("summary", el("h2", title, " ", el("small", str(len(rows))))),
            el("div", table, cls="scroll"),
            open=len(rows) <= MOST_OPEN_ROWS,
        ),
        id=name,
    )


def plan_facts(story: Story) -> Html:
    """Who, when, how, and what was left alone."""
    plan, settings = story.plan, story.plan.settings
    sessions = story.timeline.sessions
    region = f", {settings.per_region} in one region" if settings.per_region else ""
    facts: list[tuple[str, Child]] = [
        ("command", el("code", one_line(safe(plan.command)))),
        ("planned", f"{plan.created:%Y-%m-%d %H:%M:%S} UTC by {one_line(plan.operator)}"),
        ("rayfleet", one_line(plan.tool)),
        ("fleet file", one_line(plan.fleet)),
        ("estimate", spell(plan.estimate) if plan.estimate else "unknown"),
        ("images", _images(story)),
        ("at once", f"{settings.parallel}{region}"),
        (
            "failure budget",
            f"{settings.max_failures} touched, {settings.max_untouched} untouched; "
            f"then {settings.on_failure}",
        ),
        ("bake", f"{spell(settings.bake)} per wave" if settings.bake else "none"),
        ("jobs", "preserved" if settings.preserve_jobs else "killed (--no-preserve-jobs)"),
        ("unhealthy clusters", settings.unhealthy.value),
        ("only outdated", "yes" if settings.only_outdated else "no"),
    ]
    runs = [
        el(
            "li",
            f"{run.begun:%Y-%m-%d %H:%M:%S}, {spell((run.ended - run.begun).total_seconds())}, "
            f"by {one_line(run.by)}: {one_line(run.end) or 'its process was killed'}",
        )
        for run in sessions
    ]
    asked = [el("li", _request(record)) for record in story.timeline.requests]
    facts += [("runs", el("ol", runs))] if runs else []
    facts += [("asked for", el("ol", asked))] if asked else []
    left = [el("li", f"{each.cluster}: {one_line(safe(each.why))}") for each in plan.skipped]
    facts += [("left alone", el("ul", left))] if left else []
    return el(
        "section",
        el("h2", "Plan"),
        el("dl", [[el("dt", key), el("dd", value)] for key, value in facts], cls="facts"),
        id="plan",
    )


def _request(record: Record) -> str:
    data = record.data
    clusters = data.get("clusters")
    names = ", ".join(map(str, clusters)) if isinstance(clusters, list | tuple) else ""
    what = f"{data.get('verb', '')} {names} by {data.get('by', 'unknown')}"
    return one_line(f"{record.at:%H:%M:%S} {what}")


def _images(story: Story) -> Html:
    """Every change of image, and how many clusters it is for."""
    found: dict[tuple[str, str], int] = {}
    for target in story.plan.targets.values():
        key = short(target.digest_now), short(target.digest_wanted)
        found[key] = found.get(key, 0) + 1
    lines = [
        el(
            "li",
            el("code", f"{old} -> {new}" if old != new else f"{old} (kept)"),
            f" {count(number, 'cluster')}",
        )
        for (old, new), number in found.items()
    ]
    return el("ul", lines)
