"""The timeline of the page: a lane for each cluster, its steps on one axis. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rayfleet.rollout.model import Direction, Plan, Step, Target
from rayfleet.rollout.state import ClusterState, State
from rayfleet.rollout.tell.axis import Axis
from rayfleet.rollout.tell.facts import TROUBLED, Standing, last_way, standing
from rayfleet.rollout.tell.images import image_text
from rayfleet.rollout.tell.jobs import fates_of
from rayfleet.rollout.tell.markup import Html, el
from rayfleet.rollout.tell.timeline import Bake, Fate, Timeline, Try
from rayfleet.rollout.tell.words import count, cut, one_line, safe, spell

OPEN_WAVE = 40
"""Clusters of a wave from which its lanes are folded away unless one is in trouble."""

PERCENT_PER_LETTER, PERCENT_AROUND = 0.8, 0.6
"""How much of the axis the text in a segment needs on a common screen."""

CODES: Mapping[Step, str] = {step: f"s{number}" for number, step in enumerate(Step)}
"""The class of each step's segments."""

TONES: Mapping[Standing, str] = {
    Standing.WAITING: "idle",
    Standing.UNDER_WAY: "busy",
    Standing.DONE: "good",
    Standing.WITHOUT_JOBS: "warn",
    Standing.SKIPPED: "idle",
    Standing.LEFT_CHANGED: "warn",
    Standing.LEFT_WITHOUT_JOBS: "warn",
    Standing.UNTOUCHED: "bad",
    Standing.LOCKED: "bad",
    Standing.FAILED: "bad",
    Standing.INCONCLUSIVE: "warn",
    Standing.ROLLING_BACK: "back",
    Standing.ROLLED_BACK: "back",
    Standing.BACK_WITHOUT_JOBS: "warn",
    Standing.BACK_INCONCLUSIVE: "warn",
    Standing.NOT_ROLLED_BACK: "bad",
}
"""The class that gives a standing its colour."""

_FATES = {
    Fate.FAILED: "x",
    Fate.INCONCLUSIVE: "q",
    Fate.CUT: "c",
    Fate.RUNNING: "r",
    Fate.DONE: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that the page is made from."""

    plan: Plan
    state: State
    timeline: Timeline
    axis: Axis
    numbers: Mapping[str, int]


def pill(where: Standing) -> Html:
    """A standing as a coloured word."""
    return el("span", where.value, cls=f"pill {TONES[where]}")


def chart(story: Story) -> Html:
    """The whole timeline, with its legend."""
    marks = [
        el("i", el("b", label), style=f"left:{place:.2f}%") for place, label in story.axis.ticks()
    ]
    return el(
        "section",
        el("h2", "Timeline"),
        _legend(story),
        el(
            "div",
            el("div", el("span", "UTC", cls="utc"), el("div", marks, cls="ticks"), cls="axis"),
            el("div", marks_without_text(story), _breaks(story), cls="grid", aria_hidden="true"),
            [_wave(story, number) for number in range(len(story.plan.waves))],
            cls="chart",
        ),
        id="timeline",
    )


def marks_without_text(story: Story) -> list[Html]:
    """The lines of the axis, behind the lanes."""
    return [el("i", style=f"left:{place:.2f}%") for place, _ in story.axis.ticks()]


def _breaks(story: Story) -> Iterator[Html]:
    for piece in story.axis.pieces:
        if piece.shortened:
            gap = spell(piece.ended - piece.begun)
            style = f"left:{piece.left:.2f}%;width:{piece.right - piece.left:.2f}%"
            yield el("u", el("b", gap), style=style, title=f"nobody drove it for {gap}")


def _wave(story: Story, number: int) -> Html:
    wave, state = story.plan.waves[number], story.state
    where = {name: standing(state.clusters[name]) for name in wave.clusters}
    counts = Counter(where.values())
    words = ", ".join(f"{counts[each]} {each}" for each in Standing if counts[each])
    begun = [name for name in wave.clusters if where[name] is not Standing.WAITING]
    idle = [name for name in wave.clusters if where[name] is Standing.WAITING]
    troubled = any(each in TROUBLED for each in where.values())
    title = f"Wave {number + 1}"
    bakes = [bake for bake in story.timeline.bakes if bake.wave == number]
    head = el(
        "summary",
        el(
            "span",
            el("strong", title),
            " ",
            "canary" if wave.canary else wave.name,
            el("small", words),
            cls="name",
        ),
        el("span", [_bake(story, bake) for bake in bakes], cls="track"),
    )
    lanes = [_lane(story, name, where[name]) for name in begun]
    return el(
        "details",
        head,
        lanes,
        _idle(story, idle),
        cls="wave dense" if len(story.plan.targets) > OPEN_WAVE else "wave",
        open=troubled or len(wave.clusters) <= OPEN_WAVE,
    )


def _idle(story: Story, names: Sequence[str]) -> Html | None:
    if not names:
        return None
    links = [
        el("span", name, id=f"c{story.numbers[name]}") if n == 0 else [", ", _anchored(story, name)]
        for n, name in enumerate(names)
    ]
    return el("p", el("strong", f"{count(len(names), 'cluster')} not begun: "), links, cls="rest")


def _anchored(story: Story, name: str) -> Html:
    return el("span", name, id=f"c{story.numbers[name]}")


def _bake(story: Story, bake: Bake) -> Html:
    left, right = story.axis.place(bake.begun), story.axis.place(bake.ended)
    took = spell((bake.ended - bake.begun).total_seconds())
    text = f"bake {took}{'' if bake.whole else ', broken off'}"
    return el(
        "i",
        _fitting(text, right - left),
        cls="bake",
        style=f"left:{left:.2f}%;width:{right - left:.2f}%",
        title=text,
    )


def _lane(story: Story, name: str, where: Standing) -> Html:
    tries = story.timeline.lanes.get(name, ())
    return el(
        "details",
        el(
            "summary",
            el("span", el("span", name, cls="who"), pill(where), cls="name"),
            el(
                "span",
                [_segment(story, each) for each in tries],
                cls="track",
                role="img",
                aria_label=_aloud(tries),
            ),
        ),
        _inside(story, story.plan.targets[name], where, tries),
        cls="lane",
        id=f"c{story.numbers[name]}",
    )


def _segment(story: Story, each: Try) -> Html:
    left, right = story.axis.place(each.begun), story.axis.place(each.ended)
    width = right - left
    back = each.direction is Direction.BACK
    classes = [CODES[each.step], "b" if back else "", "t" if each.number > 1 else ""]
    classes.append(_FATES[each.fate])
    return el(
        "i",
        _fitting(each.step.value, width),
        cls=" ".join(filter(None, classes)),
        style=f"left:{left:.2f}%;width:{width:.2f}%",
        title=f"{_words(each)}, from {each.begun:%H:%M:%S}",
    )


def _fitting(text: str, width: float) -> str | None:
    return text if width >= len(text) * PERCENT_PER_LETTER + PERCENT_AROUND else None


def _words(each: Try) -> str:
    back = "back: " if each.direction is Direction.BACK else ""
    again = f" (try {each.number})" if each.number > 1 else ""
    fate = "" if each.fate is Fate.DONE else f" {each.fate}"
    return f"{back}{each.step}{again}{fate} {spell(each.seconds)}"


def _aloud(tries: Sequence[Try]) -> str:
    return ", ".join(map(_words, tries)) or "nothing was done"


def _inside(story: Story, target: Target, where: Standing, tries: Sequence[Try]) -> Html:
    """What unfolds below a lane."""
    rows = [_row(each) for each in tries]
    cluster = story.state.clusters[target.cluster]
    fates = tuple(fates_of(story.plan, target, cluster))
    lost = sum(fate.lost for fate in fates)
    workers = ", ".join(f"{number} {kind}" for kind, number in target.workers.items())
    facts = [
        ("where", f"{target.project}, {target.zone}"),
        ("image", image_text(target, where)),
        ("changes", "; ".join(map(one_line, target.changes)) or "none"),
        ("workers before", workers or "none"),
        ("jobs", f"{count(len(fates), 'job')}, {lost or 'none'} lost" if fates else "none"),
        ("why", one_line(safe(target.why))),
        ("gates", _gates(cluster)),
    ]
    return el(
        "div",
        el(
            "table",
            el("tr", [el("th", each, scope="col") for each in ("step", "begun", "took", "end")]),
            rows,
        )
        if rows
        else None,
        el("dl", [[el("dt", key), el("dd", value)] for key, value in facts if value]),
        cls="inside",
    )


def _gates(cluster: ClusterState) -> str:
    """What each gate has found, on the last way."""
    found = last_way(cluster)
    output = found[1].outputs.get(Step.GATES, {}) if found else {}
    if "promoted" in output:
        return one_line(f"taken as passed by {output['promoted']}")
    passed = output.get("passed")
    if not isinstance(passed, Mapping):
        return ""
    return "; ".join(cut(one_line(safe(f"{gate}: {said}")), 90) for gate, said in passed.items())


def _row(each: Try) -> Html:
    name = [
        el("s", cls=f"key {CODES[each.step]}{' b' if each.direction is Direction.BACK else ''}"),
        f"{'back: ' if each.direction is Direction.BACK else ''}{each.step}",
        f" (try {each.number})" if each.number > 1 else "",
    ]
    end = each.fate.value + (f": {one_line(safe(each.why))}" if each.why else "")
    return el(
        "tr",
        el("td", name),
        el("td", f"{each.begun:%H:%M:%S}"),
        el("td", spell(each.seconds)),
        el("td", end, cls="" if each.fate is Fate.DONE else "bad"),
    )


def _legend(story: Story) -> Html:
    tries = [each for lane in story.timeline.lanes.values() for each in lane]
    used = {each.step for each in tries if each.direction is Direction.FORWARD}
    items = [_item(CODES[step], step.value) for step in Step if step in used]
    extras = (
        ("x", "failed", any(each.fate is Fate.FAILED for each in tries)),
        ("q", "inconclusive", any(each.fate is Fate.INCONCLUSIVE for each in tries)),
        ("s6 c", "cut off by a kill", any(each.fate is Fate.CUT for each in tries)),
        ("s6 t", "tried again", any(each.number > 1 for each in tries)),
        ("s6 r", "under way", any(each.fate is Fate.RUNNING for each in tries)),
        ("s6 b", "on the way back", any(each.direction is Direction.BACK for each in tries)),
        ("bake", "bake", bool(story.timeline.bakes)),
    )
    items += [_item(code, words) for code, words, wanted in extras if wanted]
    return el("ul", items, cls="legend", aria_label="Legend")


def _item(code: str, words: str) -> Html:
    return el("li", el("s", cls=f"key {code}"), words)
