"""The part of the second reading that is about ``rollout:``: order, waves, limits, gates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rayfleet.arguments import duration_of
from rayfleet.fleet.check_shared import Entry, check_repeats, inside
from rayfleet.fleet.document import Document, Problem, Trail, Value
from rayfleet.fleet.model import GATES
from rayfleet.fleet.shape import did_you_mean, mappings

PERCENT = re.compile(r"([1-9][0-9]?|100)%")
GATE = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
LIMITS = {"parallel": 1, "parallel_per_region": 0, "max_failures": 0, "max_untouched": 0}
ALWAYS = ("ssh", "health")  # a cluster that does not answer has passed nothing


def check_rollout(document: Document, root: Path) -> Iterator[Problem]:
    """Every mistake of meaning in ``rollout``; ``root`` is where commands are looked for."""
    rollout = document.value.get("rollout")
    if not isinstance(rollout, dict):
        return
    yield from _check_order(document, rollout.get("order"))
    if isinstance(rollout.get("waves"), list):
        yield from _check_waves(document, rollout["waves"])
    for key, least in LIMITS.items():
        yield from _check_count(document, ("rollout", key), rollout.get(key), least)
    if "bake" in rollout:
        yield from _check_duration(document, ("rollout", "bake"), rollout["bake"], zero=True)
    for name, gate in mappings(rollout.get("gates")):
        yield from _check_gate(document, root, name, gate)
    yield from _check_notify(document, rollout.get("notify"))


def _check_order(document: Document, order: Value) -> Iterator[Problem]:
    clusters = document.value.get("clusters")
    if isinstance(order, list) and isinstance(clusters, dict):
        for index, name in enumerate(order):
            if isinstance(name, str) and name not in clusters:
                text = f"there is no cluster {name!r}; {did_you_mean(name, clusters)}"
                yield document.problem(("rollout", "order", index), text)
        yield from check_repeats(document, ("rollout", "order"), order)


def _check_waves(document: Document, waves: Value) -> Iterator[Problem]:
    trail: Trail = ("rollout", "waves")
    steps = waves if isinstance(waves, list) else []
    wrong = [index for index, wave in enumerate(steps) if not _is_wave(wave)]
    for index in wrong:
        text = f'{steps[index]!r} is no wave; write a count from 1 or a text such as "25%"'
        yield document.problem((*trail, index), text)
    if wrong:
        return
    if not steps or steps[-1] != "100%":
        text = 'the last wave must be "100%", or some clusters are never reached; add it'
        yield document.problem(trail, text)
    shares = [int(wave[:-1]) for wave in steps if isinstance(wave, str)]
    if shares != sorted(set(shares)):
        yield document.problem(trail, "the percentages must grow from wave to wave; sort them")


def _is_wave(wave: Value) -> bool:
    if isinstance(wave, str):
        return PERCENT.fullmatch(wave) is not None
    return isinstance(wave, int) and not isinstance(wave, bool) and wave > 0


def _check_count(document: Document, trail: Trail, count: Value, least: int) -> Iterator[Problem]:
    if isinstance(count, int) and not isinstance(count, bool) and count < least:
        yield document.problem(trail, f"{count} is too few; write {least} or more")


def _check_duration(
    document: Document, trail: Trail, value: Value, *, zero: bool = False
) -> Iterator[Problem]:
    seconds = duration_of(value) if isinstance(value, str) else None
    if seconds is None:
        written = document.plain.get(trail, value)
        text = f"{written!r} is no duration; write a count and s, m or h, such as 30s"
        yield document.problem(trail, text if value is not None else "empty; write 30s")
    elif not seconds and not zero:
        yield document.problem(trail, f"{value} is no time at all; write 1s or more")


def _check_gate(document: Document, root: Path, name: str, gate: Entry) -> Iterator[Problem]:
    trail: Trail = ("rollout", "gates", name)
    for key in ("interval", "timeout"):
        if gate.get(key) is not None:
            yield from _check_duration(document, (*trail, key), gate[key])
    interval, timeout = _seconds(gate.get("interval")), _seconds(gate.get("timeout"))
    if interval is not None and timeout is not None and interval > timeout:
        text = f"the interval {gate['interval']} is above the timeout; write a longer timeout"
        yield document.problem((*trail, "timeout"), text)
    yield from _check_count(document, (*trail, "successes"), gate.get("successes"), 1)
    if gate.get("enabled") is False and name in ALWAYS:
        text = "cannot be turned off: a cluster that does not answer has passed nothing; remove it"
        yield document.problem((*trail, "enabled"), text)
    yield from _check_run(document, trail, name, gate.get("run"))
    yield from _check_command(document, root, name, gate)


def _seconds(value: Value) -> float | None:
    return duration_of(value) if isinstance(value, str) else None


def _check_run(document: Document, trail: Trail, name: str, run: Value) -> Iterator[Problem]:
    if not isinstance(run, str):
        return
    if name != "probe":
        text = "only the gate probe runs a job; write command: [PROGRAM, …] for a gate of your own"
        yield document.problem((*trail, "run"), text)
    elif not run.strip():
        yield document.problem((*trail, "run"), "empty; write an entrypoint such as: echo ok")


def _check_command(document: Document, root: Path, name: str, gate: Entry) -> Iterator[Problem]:
    trail: Trail = ("rollout", "gates", name)
    if name in GATES:
        if "command" in gate:
            text = f"{name} is a gate of rayfleet's; write the command under a name of its own"
            yield document.problem((*trail, "command"), text)
        return
    if "command" not in gate:
        text = f"there is no gate {name!r} and it has no command; {did_you_mean(name, GATES)}"
        yield document.problem(trail, text)
        return
    if not GATE.fullmatch(name):
        text = f"{name!r} is no name of a gate; write up to 40 of a-z, 0-9 and -, a letter first"
        yield document.problem(trail, text)
    command = gate["command"]
    if isinstance(command, list):
        yield from _check_program(document, root, (*trail, "command"), command)


def _check_program(
    document: Document, root: Path, trail: Trail, command: list[Value]
) -> Iterator[Problem]:
    program = command[0] if command else ""
    if not isinstance(program, str):
        return
    if not program.strip():
        yield document.problem(trail, "empty; write a program and its arguments, [scripts/check]")
        return
    # A bare name is looked for in PATH, an absolute path may be another machine's.
    if "/" not in program or Path(program).is_absolute():
        return
    path = inside(root, program)
    if not path.is_file():
        text = f"there is no file {program!r} in the project; write a program that exists"
        yield document.problem((*trail, 0), text)
    elif not os.access(path, os.X_OK):
        text = f"{program} is not executable; run: chmod +x {program}"
        yield document.problem((*trail, 0), text)


def _check_notify(document: Document, notify: Value) -> Iterator[Problem]:
    variable = notify.get("url_env") if isinstance(notify, dict) else None
    if isinstance(variable, str) and not VARIABLE.fullmatch(variable):
        # Not quoted: it may be the URL itself, which is a secret.
        text = (
            "not the name of an environment variable, which holds the URL; write RAYFLEET_WEBHOOK"
        )
        yield document.problem(("rollout", "notify", "url_env"), text)
