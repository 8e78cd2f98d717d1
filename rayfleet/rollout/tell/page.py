"""The report of a rollout as one page of HTML that needs nothing else. Pure.

No script is needed to read it; the one that is there may run because the page's own policy
names its hash, and nothing else may, whatever the names of jobs say.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.model import Plan
from rayfleet.rollout.state import Result, State
from rayfleet.rollout.tell.axis import Axis
from rayfleet.rollout.tell.chart import Story, chart, pill
from rayfleet.rollout.tell.events import result_word
from rayfleet.rollout.tell.facts import standings
from rayfleet.rollout.tell.markup import Html, el, raw
from rayfleet.rollout.tell.style import SCRIPT, STYLE
from rayfleet.rollout.tell.tables import clusters_table, jobs_table, plan_facts, problems
from rayfleet.rollout.tell.timeline import trace
from rayfleet.rollout.tell.words import count, one_line, spell

_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    f"script-src 'sha256-{_HASH}'"
)
_TONES = {
    Result.DONE: "good",
    Result.WITHOUT_JOBS: "warn",
    Result.FAILED: "bad",
    Result.ABORTED: "bad",
}


def html_report(plan: Plan, state: State, records: Sequence[Record]) -> str:
    """The whole rollout as a page that opens offline: failures, timeline, clusters, jobs, plan."""
    timeline = trace(records)
    order = [name for wave in plan.waves for name in wave.clusters]
    story = Story(
        plan=plan,
        state=state,
        timeline=timeline,
        axis=Axis(timeline.sessions),
        numbers={name: number for number, name in enumerate(order)},
    )
    body = el(
        "main",
        _head(story),
        problems(story),
        chart(story),
        clusters_table(story),
        jobs_table(story),
        plan_facts(story),
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{result_word(state)}: rollout {plan.id}"),
        el("style", raw(STYLE)),
    )
    page = el("html", head, el("body", body, el("script", raw(SCRIPT))), lang="en")
    return f"<!doctype html>\n{page}\n"


def _head(story: Story) -> Html:
    plan, state, timeline = story.plan, story.state, story.timeline
    tone = "warn" if state.result is None else _TONES[state.result]
    when = None
    if timeline.sessions:
        begun, ended = timeline.sessions[0].begun, timeline.sessions[-1].ended
        same = begun.date() == ended.date()
        until = f"{ended:%H:%M}" if same else f"{ended:%Y-%m-%d %H:%M}"
        when = el(
            "p",
            f"{begun:%Y-%m-%d %H:%M} to {until} UTC, {spell(timeline.seconds)}, "
            f"by {', then '.join(_drivers(story))}",
            cls="when",
        )
    chips = [
        el("li", el("b", str(number)), pill(where)) for where, number in standings(state).items()
    ]
    return el(
        "header",
        el("p", f"Rollout of {one_line(plan.fleet)}", cls="eyebrow"),
        el("h1", plan.id, " ", el("span", result_word(state), cls=f"result {tone}")),
        when,
        el("p", f"Paused: {one_line(state.paused)}", cls="paused") if state.paused else None,
        el("ul", chips, cls="chips", aria_label=count(len(state.clusters), "cluster")),
    )


def _drivers(story: Story) -> list[str]:
    """Who drove it, in their order."""
    return list(dict.fromkeys(one_line(run.by) or "unknown" for run in story.timeline.sessions))
