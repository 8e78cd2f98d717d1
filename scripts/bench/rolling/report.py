"""What was measured, in words and as the closing line of JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolling.rounds import Run

BARS: Mapping[str, float] = {
    "one_vs_ray": 1.15,
    "three_vs_ray": 1.15,
    "three_vs_serial": 0.6,
    "thousand_planned_seconds": 1.0,
    "thousand_driven_seconds": 60.0,
}
RATIOS = {
    "one_vs_ray": ("rayfleet", "ray"),
    "three_vs_ray": ("at once", "ray at once"),
    "three_vs_serial": ("at once", "in turn"),
}
TITLES = {
    "ray": "one cluster: ray down -y && ray up -y",
    "rayfleet": "one cluster: invoke restart, jobs included",
    "ray at once": "three clusters: ray down && ray up, in 3 shells",
    "in turn": "three clusters: --parallel 1",
    "at once": "three clusters: --parallel 3",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """``runs`` by method, ``thousand`` the figures of the simulated fleet, ``faults`` of jobs."""

    runs: Mapping[str, Sequence[Run]]
    thousand: Mapping[str, float]
    faults: Sequence[str]

    @property
    def ratios(self) -> dict[str, float]:
        """Of medians."""
        return {
            name: round(self._median(over) / self._median(under), 3)
            for name, (over, under) in RATIOS.items()
            if over in self.runs and under in self.runs
        }

    @property
    def missed(self) -> list[str]:
        """A line for each bar that was missed and each job that was lost or doubled."""
        measured = {**self.ratios, **self.thousand}
        found = [
            f"{name} is {measured[name]:g}, its bar is {bar:g}"
            for name, bar in BARS.items()
            if name in measured and measured[name] > bar
        ]
        return [*found, *self.faults]

    def lines(self) -> Iterator[str]:
        """A table, where our time went, and each bar."""
        yield f"{'seconds':44}{'median':>9}{'CPU':>9}{'others':>9}  all"
        for name, title in TITLES.items():
            if name not in self.runs:
                continue
            runs = self.runs[name]
            every = ", ".join(f"{run.watch.seconds:.1f}" for run in runs)
            cpu = statistics.median(run.watch.cpu for run in runs)
            others = max(run.watch.others for run in runs)
            yield f"  {title:42}{self._median(name):9.1f}{cpu:9.1f}{others:9.1f}  {every}"
        yield ""
        yield from self._steps()
        for name, value in {**self.ratios, **self.thousand}.items():
            bar = BARS.get(name)
            verdict = (
                "" if bar is None else f", bar {bar:g}: {'held' if value <= bar else 'MISSED'}"
            )
            yield f"  {name:30} {value:9.3f}{verdict}"

    def as_json(self) -> dict[str, Any]:
        """The closing line."""
        return {
            "ratios": self.ratios,
            "bars": dict(BARS),
            "figures": {
                **{name: [_figures(run) for run in runs] for name, runs in self.runs.items()},
                **self.thousand,
                "job_faults": list(self.faults),
            },
        }

    def _median(self, name: str) -> float:
        return statistics.median(run.watch.seconds for run in self.runs[name])

    def _steps(self) -> Iterator[str]:
        found: dict[str, list[float]] = {}
        for run in self.runs.get("rayfleet", ()):
            for step, seconds in next(iter(run.steps.values()), {}).items():
                found.setdefault(step, []).append(seconds)
        if found:
            yield "one cluster, seconds of each step (median)"
            medians = {step: statistics.median(times) for step, times in found.items()}
            yield "  " + ", ".join(f"{step} {each:.1f}" for step, each in medians.items())
            whole = self._median("rayfleet")
            yield f"  start of Python, plan, report: {whole - sum(medians.values()):.1f}"
            yield ""


def _figures(run: Run) -> dict[str, Any]:
    return {
        "seconds": round(run.watch.seconds, 2),
        "cpu_seconds": round(run.watch.cpu, 2),
        "others": round(run.watch.others, 2),
        "load": round(run.load, 2),
        "steps": run.steps,
    }
