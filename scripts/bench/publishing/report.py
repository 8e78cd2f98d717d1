"""From the samples to ratios, bars, a table and the closing line of JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from publishing.links import RATE
from publishing.measuring import Sample
from publishing.methods import METHODS
from publishing.stages import COLD, MIDDLE, NOTHING, TOP, Stage

LOOPBACK, WAN = "loopback", "wan"
CHANGES = (COLD, TOP, MIDDLE, NOTHING)
LIBRARY, TASK, DOCKER = "rayfleet", "invoke", "docker"
OURS = (LIBRARY, TASK)
BEST = "best"  # the peer that took the least time
# name: stage, what changed, theirs, and the most that the task may take of it (None: reported only)
RATIOS: dict[str, tuple[str, str, str, float | None]] = {
    "cold_vs_docker": (LOOPBACK, COLD, DOCKER, 0.20),
    "cold_vs_best": (LOOPBACK, COLD, BEST, 1.0),
    "delta_vs_docker": (LOOPBACK, TOP, DOCKER, 0.40),
    "delta_vs_best": (LOOPBACK, TOP, BEST, 1.0),
    "middle_vs_docker": (LOOPBACK, MIDDLE, DOCKER, None),
    "middle_vs_best": (LOOPBACK, MIDDLE, BEST, 1.0),
    "noop_vs_docker": (LOOPBACK, NOTHING, DOCKER, None),
    "noop_vs_best": (LOOPBACK, NOTHING, BEST, None),
    "wan_cold_vs_docker": (WAN, COLD, DOCKER, 0.30),
    "wan_cold_vs_best": (WAN, COLD, BEST, 1.0),
    "wan_delta_vs_docker": (WAN, TOP, DOCKER, 0.10),
    "wan_delta_vs_best": (WAN, TOP, BEST, 1.0),
    "wan_noop_vs_docker": (WAN, NOTHING, DOCKER, None),
    "wan_noop_vs_best": (WAN, NOTHING, BEST, 1.0),
}
CPU_BAR = 0.15  # of dockerd and client together, cold
MEMORY_BAR_MB = 200
TWICE_BAR = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """``ratios`` are the task's seconds divided by theirs, ``_library`` those of the publish
    alone; ``bars`` are the most that each may be; ``figures`` has everything that was measured."""

    ratios: Mapping[str, float]
    bars: Mapping[str, float]
    figures: Mapping[str, Any]

    @property
    def missed(self) -> list[str]:
        """A line per bar that was missed."""
        measured = {**self.figures, **self.ratios}
        return [
            f"{name} is {measured[name]:g}, its bar is {bar:g}"
            for name, bar in self.bars.items()
            if measured[name] > bar
        ]

    def as_json(self) -> dict[str, Any]:
        """The closing line."""
        return {
            "ratios": dict(self.ratios),
            "bars": dict(self.bars),
            "figures": dict(self.figures),
        }


def report(stages: Sequence[Stage]) -> Report:
    """Everything that the stages measured."""
    by_name = {stage.name: stage for stage in stages}
    ratios: dict[str, float] = {}
    bars: dict[str, float] = {}
    for name, (stage, change, theirs, bar) in RATIOS.items():
        if stage not in by_name:
            continue
        samples = {
            key: median(each[change], "seconds") for key, each in by_name[stage].samples.items()
        }
        peers = {key: seconds for key, seconds in samples.items() if key not in OURS}
        against = min(peers.values()) if theirs == BEST else peers[theirs]
        ratios[name] = round(samples[TASK] / against, 4)
        ratios[f"{name}_library"] = round(samples[LIBRARY] / against, 4)
        if bar is not None:
            bars[name] = bar
    if LOOPBACK in by_name:
        samples = by_name[LOOPBACK].samples
        ours_cpu, theirs_cpu = (median(samples[key][COLD], "cpu") for key in (TASK, DOCKER))
        ratios["cpu_vs_docker"] = round(ours_cpu / theirs_cpu, 4)
        bars["cpu_vs_docker"] = CPU_BAR
    peaks = [each.told["peak_kilobytes"] for each in _samples(stages, LIBRARY)]
    figures: dict[str, Any] = {
        "peak_memory_mb": round(max(peaks) / 1024, 1),
        "blobs_sent_twice": sum(each.twice for key in OURS for each in _samples(stages, key)),
    }
    bars |= {"peak_memory_mb": MEMORY_BAR_MB, "blobs_sent_twice": TWICE_BAR}
    if WAN in by_name:
        cold = by_name[WAN].samples[LIBRARY][COLD]
        figures["wan_cold_vs_bandwidth"] = round(
            median(cold, "seconds") / (max(cold[0].told["sent"].values()) / RATE), 2
        )
    figures |= {stage.name: _figures(stage) for stage in stages}
    return Report(ratios=ratios, bars=bars, figures=figures)


def table(stages: Sequence[Stage]) -> Iterator[str]:
    """The medians in words: a block per stage, a line per method.

    "MB" is what the layers were packed to, "others" how many processors the rest of the machine
    kept busy in the cold run.
    """
    for stage in stages:
        yield f"{stage.name}, seconds (image of {stage.image_size / 1e6:.0f} MB)"
        changes = [each for each in CHANGES if each in stage.samples[TASK]]
        columns = [*changes, "MB", "CPU cold", "others"]
        yield f"  {'':38}" + "".join(f"{each:>9}" for each in columns)
        for method in METHODS:
            if method.key not in stage.samples:
                continue
            samples = stage.samples[method.key]
            row = [median(samples[change], "seconds") for change in changes]
            row += [median(samples[COLD], "packed") / 1e6]
            row += [median(samples[COLD], "cpu"), median(samples[COLD], "foreign")]
            yield f"  {method.title:38}" + "".join(f"{each:9.2f}" for each in row)
        yield ""


def verdicts(found: Report) -> Iterator[str]:
    """The ratios and the bars in words."""
    for name, value in {**found.ratios, **found.figures}.items():
        if name.endswith("_library") or isinstance(value, dict):
            continue
        alone = found.ratios.get(f"{name}_library")
        beside = f" (the publish alone {alone:.3f})" if alone is not None else ""
        bar = found.bars.get(name)
        judged = "" if bar is None else f", bar {bar:g}: {'held' if value <= bar else 'MISSED'}"
        yield f"  {name:22} {value:8.3f}{beside}{judged}"


def median(samples: Sequence[Sample], what: str) -> float:
    """The median of one of the figures of the samples."""
    return float(statistics.median(getattr(each, what) for each in samples))


def _samples(stages: Sequence[Stage], method: str) -> Iterator[Sample]:
    for stage in stages:
        for samples in stage.samples[method].values():
            yield from samples


def _figures(stage: Stage) -> dict[str, Any]:
    return {
        "image_bytes": stage.image_size,
        "methods": {
            method: {change: _figure(samples) for change, samples in by_change.items()}
            for method, by_change in stage.samples.items()
        },
    }


def _figure(samples: Sequence[Sample]) -> dict[str, Any]:
    """The medians, every single run, and what the last program told of itself."""
    names = ("seconds", "packed", "cpu", "engine", "foreign", "requests", "uploads")
    told = {key: value for key, value in samples[-1].told.items() if key in ("phases", "sent")}
    return {
        **{name: round(median(samples, name), 3) for name in names},
        "runs": [round(each.seconds, 3) for each in samples],
        **told,
    }
