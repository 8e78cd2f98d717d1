"""The live table of a rollout as lines of a given terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rayfleet.console import Line
from rayfleet.rollout.model import Direction, Plan, steps_of
from rayfleet.rollout.state import ClusterState, State, Way
from rayfleet.rollout.tell.facts import (
    MOVING,
    TROUBLED,
    Standing,
    cluster_seconds,
    failures,
    in_order,
    last_way,
    standing,
    standings,
    waves_of,
)
from rayfleet.rollout.tell.pace import rest_seconds
from rayfleet.rollout.tell.words import clock, cut, one_line, spell

STYLES: Mapping[Standing, str] = {
    Standing.WAITING: "dim",
    Standing.UNDER_WAY: "cyan",
    Standing.DONE: "green",
    Standing.WITHOUT_JOBS: "yellow",
    Standing.SKIPPED: "dim",
    Standing.LEFT_CHANGED: "yellow",
    Standing.LEFT_WITHOUT_JOBS: "yellow",
    Standing.UNTOUCHED: "red",
    Standing.LOCKED: "red",
    Standing.FAILED: "bold red",
    Standing.INCONCLUSIVE: "yellow",
    Standing.ROLLING_BACK: "magenta",
    Standing.ROLLED_BACK: "magenta",
    Standing.BACK_WITHOUT_JOBS: "magenta",
    Standing.BACK_INCONCLUSIVE: "yellow",
    Standing.NOT_ROLLED_BACK: "bold red",
}
LONGEST_NAME = 28
# Columns of a terminal from which there is room for more than name, step and its time.
WIDTH_FOR_TOTAL = 60
WIDTH_FOR_WAVE = 70
WIDTH_FOR_DETAIL = 76
STEP_WIDTH, NARROW_STEP_WIDTH = 18, 13
TIME_WIDTH = 7
GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a frame shows. ``details`` are the last ones by cluster; ``begun`` is when the
    rollout was; with ``ended`` nothing moves any more."""

    plan: Plan
    state: State
    now: datetime
    begun: datetime
    details: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False


def frame(view: View, width: int, height: int) -> tuple[Line, ...]:
    """The lines for a terminal of ``width`` columns and ``height`` rows: a head, the bakes, and
    as many clusters as fit: in flight, failed, ended last, next; the others are counted.
    """
    # A row stays free for the cursor, and one cluster is always there.
    head = (*_head(view, width), *_bakes(view))[: max(height - 3, 2)]
    room = max(height - len(head) - 2, 1)
    names = [target.cluster for target in in_order(view.plan)]
    if len(names) > room:
        shown = set(_chosen(view.state, names, max(room - 1, 1)))
        hidden = [name for name in names if name not in shown]
        names = [name for name in names if name in shown]
        tail: tuple[Line, ...] = (_counted(view.state, hidden),) if room > 1 else ()
    else:
        tail = ()
    columns = _Columns(view, width)
    return (*head, columns.titles(), *(columns.row(name) for name in names), *tail)


def _head(view: View, width: int) -> tuple[Line, ...]:
    state, plan = view.state, view.plan
    facts = [f"wave {_wave_at(plan, state) + 1}/{len(plan.waves)}", _elapsed(view)]
    rest = None if view.ended else rest_seconds(plan, state, view.now)
    if rest:
        facts.append(f"about {spell(rest if rest < 60 else round(rest / 60) * 60)} left")
    what = ("bold", f"rollout {plan.id}")
    order = [what, *(("", fact) for fact in facts)]
    if width < WIDTH_FOR_WAVE:
        order = [*order[1:], what]
    counts = [(f"{number} {each}", STYLES[each]) for each, number in standings(state).items()]
    second = list(_separated(counts))
    if mood := _mood(view):
        second += [(GAP, ""), (mood, "bold yellow")]
    return (list(_separated([(text, style) for style, text in order])), second)


def _mood(view: View) -> str:
    state = view.state
    if state.result is not None:
        return ""
    if state.paused:
        return f"paused: {one_line(state.paused)}"
    if view.ended:
        return ""
    if state.aborted:
        return "aborting: what is in flight is finished"
    return "pausing: what is in flight is finished" if state.pause_wanted else ""


def _elapsed(view: View) -> str:
    return clock((view.now - view.begun).total_seconds())


def _wave_at(plan: Plan, state: State) -> int:
    """The last wave of which a cluster has begun."""
    begun = [
        number
        for number, wave in enumerate(plan.waves)
        if any(state.clusters[name].forward is not None for name in wave.clusters)
    ]
    return max(begun, default=0)


def _bakes(view: View) -> Iterator[Line]:
    if view.ended:
        return
    for number, until in sorted(view.state.baking.items()):
        if number in view.state.baked or not 0 <= number < len(view.plan.waves):
            continue
        left = max(until - view.now.timestamp(), 0.0)
        text = f"wave {number + 1} ({view.plan.waves[number].name}) bakes: {clock(left)} left"
        yield [(text, "yellow")]


def _separated(parts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(parts):
        if number:
            yield (" · ", "dim")
        yield part


def _chosen(state: State, names: Sequence[str], room: int) -> Sequence[str]:
    """The ``room`` clusters that matter most."""

    def rank(name: str) -> tuple[int, float]:
        cluster = state.clusters[name]
        where = standing(cluster)
        if where in MOVING:
            return 0, 0.0
        if where in TROUBLED:
            return 1, 0.0
        if where is Standing.WAITING:
            return 3, 0.0
        way = last_way(cluster)
        ended = way[1].ended if way else None
        return 2, -ended.timestamp() if ended else 0.0

    ranked = sorted(names, key=rank)
    # A third of the rows may be failures, and two show what comes next.
    chosen = [name for name in ranked if rank(name)[0] == 1][: max(room // 3, 1)]
    coming = [name for name in ranked if rank(name)[0] == 3][:2] if room > 8 else []
    urgent = [name for name in ranked if rank(name)[0] < 3 and name not in set(chosen)]
    chosen += [*urgent[: room - len(chosen) - len(coming)], *coming]
    more = [name for name in ranked if name not in set(chosen)]
    return [*chosen, *more[: room - len(chosen)]]


def _counted(state: State, hidden: Sequence[str]) -> Line:
    counts = Counter(standing(state.clusters[name]) for name in hidden)
    parts = [(f"{counts[each]} {each}", STYLES[each]) for each in Standing if counts[each]]
    return [(f"and {len(hidden)} more: ", "dim"), *_separated(parts)]


class _Columns:
    """The rows of the table. Their widths depend on the plan only, so that nothing jumps."""

    def __init__(self, view: View, width: int) -> None:
        self._view = view
        self._waves = waves_of(view.plan)
        self._errors = {
            failure.cluster: failure.what for failure in failures(view.plan, view.state)
        }
        self._name = min(max(map(len, view.plan.targets), default=7), LONGEST_NAME, width // 3)
        self._name = max(self._name, len("cluster"))
        self._step_width = STEP_WIDTH if width >= WIDTH_FOR_TOTAL else NARROW_STEP_WIDTH
        self._has_wave = width >= WIDTH_FOR_WAVE
        self._has_total = width >= WIDTH_FOR_TOTAL
        self._has_detail = width >= WIDTH_FOR_DETAIL

    def titles(self) -> Line:
        text = self._joined("cluster", "wave", "step", "in step", "total", "")
        return [(text.rstrip(), "dim underline")]

    def row(self, name: str) -> Line:
        view = self._view
        cluster = view.state.clusters[name]
        where = standing(cluster)
        found = last_way(cluster)
        now_in = "" if found is None or where not in MOVING else _in_step(found[1], view.now)
        total = cluster_seconds(cluster, view.now)
        text = self._joined(
            cut(name, self._name),
            str(self._waves[name] + 1),
            "",
            now_in,
            "" if total is None else clock(total),
            "",
        )
        at = len(self._joined(cut(name, self._name), "", None, None, None, None))
        step = cut(self._step(name, cluster, where), self._step_width)
        return [
            (text[:at], ""),
            (f"{step:<{self._step_width}}", STYLES[where]),
            (text[at + self._step_width :], ""),
            (self._detail(name, where), "" if where in TROUBLED else "dim"),
        ]

    def _joined(
        self,
        name: str,
        wave: str,
        step: str | None,
        in_step: str | None,
        total: str | None,
        detail: str | None,
    ) -> str:
        text = f"{name:<{self._name}}{GAP}"
        if self._has_wave:
            text += f"{wave:>4}{GAP}"
        if step is not None:
            text += f"{step:<{self._step_width}}{GAP}{in_step:>{TIME_WIDTH}}{GAP}"
            text += f"{total:>{TIME_WIDTH}}{GAP}" if self._has_total else ""
        return text + (detail or "")

    def _step(self, name: str, cluster: ClusterState, where: Standing) -> str:
        found = last_way(cluster)
        if found is None or where not in MOVING | {Standing.FAILED, Standing.INCONCLUSIVE}:
            return where.value
        direction, way = found
        step = _at(self._view, name, direction, way)
        if where is Standing.FAILED:
            return f"failed: {step}"
        if where is Standing.INCONCLUSIVE:
            return where.value
        return f"back: {step}" if direction is Direction.BACK else step

    def _detail(self, name: str, where: Standing) -> str:
        if not self._has_detail:
            return ""
        if where in TROUBLED:
            return one_line(self._errors.get(name, ""))
        if where not in MOVING:
            return ""
        view = self._view
        found = last_way(view.state.clusters[name])
        said = one_line(view.details.get(name, ""))
        return f"{_progress(view, name, found)}{said}" if found else said


def _progress(view: View, name: str, found: tuple[Direction, Way]) -> str:
    """``7/12 `` before what is said of a step, and which try it is."""
    direction, way = found
    steps = steps_of(view.plan.targets[name], view.plan.settings, direction)
    if way.step not in steps:
        return ""
    tries = f"try {way.tries}: " if way.tries > 1 else ""
    return f"{steps.index(way.step) + 1}/{len(steps)} {tries}"


def _at(view: View, name: str, direction: Direction, way: Way) -> str:
    """The step at hand, or the next one."""
    if way.step is None and not way.outputs:
        return "locking"
    steps = steps_of(view.plan.targets[name], view.plan.settings, direction)
    following = next((step.value for step in steps if step not in way.outputs), "closing")
    return way.step.value if way.step is not None else following


def _in_step(way: Way, now: datetime) -> str:
    if not way.times:
        return ""
    step, begun, ended = way.times[-1]
    running = way.outcome is None and ended is None and step is way.step
    return clock((now - begun).total_seconds()) if running else ""
