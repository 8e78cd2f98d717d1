"""All lines of all logs, prefixed, on one stdout: how long it takes and whether all came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailing.content import Checked, check, write_logs
from tailing.measuring import Sample, sample
from tailing.methods import WHOLE_LOG, Bench, Method

FAULTS = ("lost", "doubled", "unnamed", "broken")


@dataclass(kw_only=True)
class Trial:
    """The runs of one method. ``told`` adds up what all of them did to the lines."""

    method: Method
    samples: list[Sample] = field(default_factory=list)
    told: Checked = field(default_factory=Checked)


def measure_throughput(
    bench: Bench,
    *,
    lines: int,
    rounds: int,
    scratch: Path,
    say: Callable[[str], None],
    methods: Sequence[Method] = WHOLE_LOG,
) -> tuple[Trial, ...]:
    """Every method in turns, ``rounds`` times, with ``lines`` lines per head."""
    write_logs(bench.heads, lines)
    trials = tuple(Trial(method=method) for method in methods)
    # `tail` from the first line on does not look for the end first.
    command = f"tail -n +1 {bench.heads.path}"
    output = scratch / "output"
    for turn in range(rounds):
        for trial in trials if turn % 2 == 0 else trials[::-1]:
            one = sample(trial.method, bench, command, output)
            trial.samples.append(one)
            found = check(output, bench.heads, trial.method.notices)
            output.unlink()
            for name in FAULTS:
                setattr(trial.told, name, getattr(trial.told, name) + getattr(found, name))
            say(
                f"{trial.method.title}: {one.seconds:.2f} s ({one.cpu:.2f} s CPU, whole machine"
                f" {one.machine:.2f}; {one.others:.1f} processors busy before);"
                f" {found.lost} lost, {found.unnamed} unnamed, {found.broken} broken"
            )
            for line in found.shown:
                say(f"  such as {line!r}")
    return trials
