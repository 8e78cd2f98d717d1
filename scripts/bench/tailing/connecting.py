"""One command on many heads, cold: from the start of the program to its end."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tailing.measuring import Sample, said, sample
from tailing.methods import CONNECTING, Bench, Method

# Not `hostname`: it is the same everywhere, and in what a tool may say of itself.
COMMAND = "set -- $SSH_CONNECTION; echo answer-$((40 + 2))-$3"
ANSWER = re.compile(rb"answer-42-127\.0\.1\.\d+")


def measure_connecting(
    bench: Bench,
    *,
    rounds: int,
    scratch: Path,
    say: Callable[[str], None],
    methods: Sequence[Method] = CONNECTING,
) -> dict[str, list[Sample]]:
    """Every method in turns, ``rounds`` times.

    Raises:
        SystemExit: a method did not bring the answer of every head.
    """
    found: dict[str, list[Sample]] = {method.key: [] for method in methods}
    output = scratch / "answers"
    for turn in range(rounds):
        for method in methods if turn % 2 == 0 else methods[::-1]:
            one = sample(method, bench, COMMAND, output)
            errors = output.with_suffix(".err")
            # pyinfra talks on stderr.
            text = output.read_bytes() + errors.read_bytes()
            answers = len(set(ANSWER.findall(text)))
            if answers != bench.heads.count:
                sys.exit(
                    f"{method.title} brought {answers} of {bench.heads.count} answers:\n"
                    f"{output.read_text(errors='replace')[-1000:]}{said([method.key], errors)}"
                )
            found[method.key].append(one)
            say(
                f"{method.title}: {bench.heads.count} heads in {one.seconds:.2f} s"
                f" ({one.cpu:.2f} s CPU, whole machine {one.machine:.2f};"
                f" {one.others:.1f} processors busy before)"
            )
    return found
