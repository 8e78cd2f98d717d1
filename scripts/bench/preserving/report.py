"""What each method took and what it brought back, in words and as the closing line of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from preserving.methods import Stopwatch

# The most that each ratio of seconds, ours divided by theirs, may be.
BARS = {"vs_ray_cli": 0.2, "vs_ray_sdk": 1.0}
Facts = Mapping[str, Any]


@dataclass(kw_only=True)
class Trial:
    """One method on one lost head. ``after`` is what the new head has, ``starts`` what it ran."""

    key: str
    title: str
    invented: frozenset[str]
    backup: Stopwatch = field(default_factory=Stopwatch)
    restore: Stopwatch = field(default_factory=Stopwatch)
    told: dict[str, Any] = field(default_factory=dict)
    after: Facts = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)

    @property
    def seconds(self) -> float:
        """Wall time of backup and restore."""
        return self.backup.seconds + self.restore.seconds

    @property
    def cpu(self) -> float:
        """Processor time of the operator's side."""
        return self.backup.cpu + self.restore.cpu

    @property
    def others(self) -> float:
        """Processors that were busy before backup or restore, the larger figure."""
        return max(self.backup.others, self.restore.others)


@dataclass(frozen=True, kw_only=True)
class Report:
    """``before`` is what the head had that was lost; ``running`` the jobs that ran there."""

    before: Facts
    running: Sequence[str]
    ours: Trial
    peers: tuple[Trial, ...]

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Ours and theirs."""
        return (self.ours, *self.peers)

    @property
    def ratios(self) -> dict[str, float]:
        """Ours divided by theirs."""
        found = {}
        for peer in self.peers:
            found[f"vs_{peer.key}"] = round(self.ours.seconds / peer.seconds, 4)
            found[f"vs_{peer.key}_cpu"] = round(self.ours.cpu / peer.cpu, 4)
        return found

    @property
    def given(self) -> Counter[str]:
        """Per field, how many jobs were given one."""
        return Counter(
            name
            for job in self.before.values()
            for name, value in job["fields"].items()
            if value not in (None, 0, {})
        )

    def back(self, trial: Trial) -> Counter[str]:
        """Per field, how many jobs got back exactly what they had been given."""
        found = Counter(dict.fromkeys(self.given, 0))
        for job_id, job in self.before.items():
            after = trial.after.get(job_id, {"fields": {}})["fields"]
            for name, value in job["fields"].items():
                if value not in (None, 0, {}) and name not in trial.invented:
                    found[name] += after.get(name) == value
        return found

    def lives(self, trial: Trial) -> dict[str, int]:
        """Jobs that are gone, that ran twice, that ran although they had waited, out of order."""
        names = [name for name in self._order(self.before) if name in trial.after]
        there = [name for name in self._order(trial.after) if name in self.before]
        return {
            "lost": len(self.before.keys() - trial.after.keys())
            + sum(trial.starts[name] == 0 for name in self.running if name in trial.after),
            "run_twice": sum(count > 1 for count in trial.starts.values())
            + len(trial.after.keys() - self.before.keys()),
            "run_and_should_wait": len(trial.starts.keys() - set(self.running)),
            "out_of_order": sum(one != other for one, other in zip(names, there, strict=True)),
        }

    @property
    def missed(self) -> list[str]:
        """A line for each thing that rayfleet promises and did not do."""
        found = [
            f"{name} is {self.ratios[name]:g}, its bar is {bar:g}"
            for name, bar in BARS.items()
            if self.ratios[name] > bar
        ]
        back = self.back(self.ours)
        found += [
            f"{name} came back in {back[name]} of {count} jobs"
            for name, count in self.given.items()
            if back[name] != count
        ]
        found += [f"{name}: {count}" for name, count in self.lives(self.ours).items() if count]
        return found

    def lines(self) -> Iterator[str]:
        """A table: a line per method, then a line per field."""
        yield f"{'seconds':36}{'backup':>9}{'restore':>9}{'both':>9}{'CPU':>9}{'others':>9}"
        for trial in self.trials:
            times = (
                trial.backup.seconds,
                trial.restore.seconds,
                trial.seconds,
                trial.cpu,
                trial.others,
            )
            yield f"{trial.title:36}" + "".join(f"{each:9.2f}" for each in times)
        yield ""
        keys = "".join(f"{trial.key:>10}" for trial in self.trials)
        yield f"{'brought back exactly':34}{'given':>9}{keys}"
        backs, given = [self.back(trial) for trial in self.trials], self.given
        for name, count in given.items():
            yield f"  {name:32}{count:9}" + "".join(f"{back[name]:10}" for back in backs)
        yield f"  {'all':32}{given.total():9}" + "".join(f"{back.total():10}" for back in backs)
        lives = [self.lives(trial) for trial in self.trials]
        for name in lives[0]:
            shown = name.replace("_", " ")
            yield f"  jobs {shown:36}" + "".join(f"{each[name]:10}" for each in lives)
        for name, bar in BARS.items():
            held = "held" if self.ratios[name] <= bar else "MISSED"
            yield f"{name} {self.ratios[name]:.3f}, bar {bar:g}: {held}"

    def as_json(self) -> dict[str, Any]:
        """The closing line."""
        given = self.given
        return {
            "ratios": self.ratios,
            "bars": BARS,
            "fields": {
                "given": given.total(),
                **{each.key: self.back(each).total() for each in self.trials},
                "by_name": {
                    name: {
                        "given": given[name],
                        **{each.key: self.back(each)[name] for each in self.trials},
                    }
                    for name in given
                },
            },
            "jobs": {each.key: self.lives(each) for each in self.trials},
            "figures": {
                "jobs": len(self.before),
                **{each.key: _figures(each) for each in self.trials},
            },
        }

    @staticmethod
    def _order(facts: Facts) -> list[str]:
        return sorted(facts, key=lambda name: (facts[name]["started"], name))


def _figures(trial: Trial) -> dict[str, Any]:
    return {
        "backup_seconds": round(trial.backup.seconds, 3),
        "restore_seconds": round(trial.restore.seconds, 3),
        "cpu_seconds": round(trial.cpu, 3),
        "others": round(trial.others, 2),
        **trial.told,
    }
