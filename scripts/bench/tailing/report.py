"""From the samples to ratios, bars, a table and the closing line of JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tailing.following import Latency, Memory
from tailing.measuring import Sample
from tailing.methods import CONNECTING, INVOKE, OURS
from tailing.throughput import FAULTS, Trial

# The most that each may be. Ratios are of seconds, those of the task divided by theirs.
BARS = {
    "vs_best_tool": 1.0,
    "connect40_vs_pyinfra": 1.0,
    "memory_10m_vs_1m": 1.1,
    "latency_p99_ms": 20.0,
    "lines_lost": 0,
    "lines_doubled": 0,
    "lines_unnamed": 0,
    "lines_broken": 0,
}
# The least.
FLOORS = {"lines_per_second": 600_000}


@dataclass(kw_only=True)
class Report:
    """``lines`` are those of one head in the throughput section. Empty: not measured."""

    heads: int
    lines: int
    throughput: Sequence[Trial] = ()
    memory: Memory | None = None
    latency: Sequence[Latency] = ()
    connecting: Mapping[str, Sequence[Sample]] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """The seconds of the task divided by theirs, and ``_given`` those of ours without the look
        at the cloud; the best tool is the one that took the least time."""
        found = {}
        tailing = {trial.method.key: _median(trial.samples) for trial in self.throughput}
        connecting = {key: _median(samples) for key, samples in self.connecting.items()}
        for prefix, times in (("", tailing), ("connect40_", connecting)):
            peers = {key: value for key, value in times.items() if key not in (OURS, INVOKE)}
            if not peers:
                continue
            peers["best_tool"] = min(peers.values())
            for key, value in peers.items():
                if INVOKE in times:
                    found[f"{prefix}vs_{key}"] = times[INVOKE] / value
                if OURS in times:
                    found[f"{prefix}vs_{key}_given"] = times[OURS] / value
        return {name: round(value, 4) for name, value in found.items()}

    @property
    def figures(self) -> dict[str, Any]:
        """Everything that was measured."""
        found: dict[str, Any] = {}
        for trial in self.throughput:
            if trial.method.key == INVOKE:
                found["lines_per_second"] = self._per_second(trial)
                found |= {f"lines_{name}": getattr(trial.told, name) for name in FAULTS}
        if self.memory is not None:
            found["memory_10m_vs_1m"] = round(self.memory.late / self.memory.early, 3)
            found["memory"] = {name: round(value, 2) for name, value in asdict(self.memory).items()}
        for latency in self.latency:
            if latency.method.key == OURS:
                found["latency_p99_ms"] = round(latency.percentiles["p99"], 2)
        found["latency_ms"] = {
            one.method.key: {
                name: round(value, 2)
                for name, value in {**one.percentiles, "others": one.others}.items()
            }
            for one in self.latency
        }
        found["throughput"] = {
            trial.method.key: {
                **_figures(trial.samples),
                "lines_per_second": self._per_second(trial),
                **{name: getattr(trial.told, name) for name in FAULTS},
            }
            for trial in self.throughput
        }
        found["connect40"] = {key: _figures(samples) for key, samples in self.connecting.items()}
        return found

    @property
    def missed(self) -> list[str]:
        """A line per bar that was missed."""
        measured = {**self.figures, **self.ratios}
        over = [
            f"{name} is {measured[name]:g}, its bar is {bar:g}"
            for name, bar in BARS.items()
            if name in measured and measured[name] > bar
        ]
        under = [
            f"{name} is {measured[name]:g}, it is to be {floor:g} at least"
            for name, floor in FLOORS.items()
            if name in measured and measured[name] < floor
        ]
        return over + under

    def as_json(self) -> dict[str, Any]:
        """The closing line."""
        return {"ratios": self.ratios, "bars": BARS, "floors": FLOORS, "figures": self.figures}

    def table(self) -> Iterator[str]:
        """Everything in words."""
        if self.throughput:
            yield from self._throughput()
        if self.memory is not None:
            one = self.memory
            yield (
                f"memory: {one.early:.1f} MB around a tenth of {one.lines} lines,"
                f" {one.late:.1f} MB towards their end, {one.peak:.1f} MB at most"
            )
            yield ""
        for latency in self.latency:
            values = {**latency.percentiles, "others": latency.others}
            shown = "".join(f"{name:>8}{value:8.2f}" for name, value in values.items())
            yield f"{'latency, ms, ' + latency.method.title:48}{shown}"
        if self.connecting:
            yield ""
            title = "connect to 40 heads and run a command"
            yield f"{title:40}{'seconds':>9}{'CPU':>9}{'others':>9}"
            for method in CONNECTING:
                if method.key in self.connecting:
                    one = _figures(self.connecting[method.key])
                    row = (one["seconds"], one["cpu"], one["others"])
                    yield f"  {method.title:38}" + "".join(f"{value:9.2f}" for value in row)
        yield ""
        measured = {**self.ratios, **self.figures}
        for name, value in measured.items():
            if isinstance(value, dict):
                continue
            limit = BARS.get(name, FLOORS.get(name))
            held = not any(line.startswith(f"{name} ") for line in self.missed)
            verdict = "" if limit is None else f", bar {limit:g}: {'held' if held else 'MISSED'}"
            yield f"  {name:28}{value:12.3f}{verdict}"

    def _throughput(self) -> Iterator[str]:
        columns = ("seconds", "CPU", "machine", "others", "klines/s", *FAULTS)
        title = f"{self.heads} heads, {self.lines} lines each"
        yield f"{title:34}" + "".join(f"{name:>9}" for name in columns)
        for trial in self.throughput:
            one = _figures(trial.samples)
            row = [one[name] for name in ("seconds", "cpu", "machine", "others")]
            row.append(self._per_second(trial) / 1000)
            yield (
                f"  {trial.method.title:32}"
                + "".join(f"{value:9.2f}" for value in row)
                + "".join(f"{getattr(trial.told, name):9}" for name in FAULTS)
            )
        yield ""

    def _per_second(self, trial: Trial) -> int:
        return round(self.heads * self.lines / _median(trial.samples))


def _median(samples: Sequence[Sample], name: str = "seconds") -> float:
    return float(statistics.median(getattr(each, name) for each in samples))


def _figures(samples: Sequence[Sample]) -> dict[str, Any]:
    """The medians, and the time of every run."""
    names = ("seconds", "cpu", "machine", "others")
    return {
        **{name: round(_median(samples, name), 3) for name in names},
        "runs": [round(each.seconds, 3) for each in samples],
    }
