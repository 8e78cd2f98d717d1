"""``invoke workers.list``: added workers as a table or a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.config import read_launch_config
from rayfleet.cluster.fanout import fan_out
from rayfleet.errors import PartialFailure, RayfleetError, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.worker.care import Care
from rayfleet.worker.model import Added, Capacity
from rayfleet.worker.queue import in_google

if TYPE_CHECKING:
    from rayfleet.console import Console

AT_ONCE = 4  # clusters
ASK_TIMEOUT = 300.0  # seconds per cluster, with all tries


def show_all(fleet: Fleet, clusters: Sequence[Cluster], console: Console, *, as_json: bool) -> None:
    """Ask Google for the added workers of ``clusters``, and show them.

    Raises:
        RayfleetError: the only cluster could not be asked.
        PartialFailure: some of several could not.
    """
    cares = {
        one.name: Care.of(fleet, one, console.event)
        for one in clusters
        if in_google(read_launch_config(fleet, one))
    }
    answers = fan_out(
        {name: partial(care.all) for name, care in cares.items()},
        limit=AT_ONCE,
        timeout=ASK_TIMEOUT,
        what="its cloud",
    )
    found, errors = [], {}
    for name, answer in answers.items():
        if isinstance(answer, RayfleetError):
            errors[name] = answer
        else:
            found.append((cares[name], answer))
    if len(errors) == len(answers) == 1:
        raise next(iter(errors.values()))
    show(found, console, as_json=as_json)
    for error in errors.values():
        console.say(error.text())
    if errors:
        raise PartialFailure(
            f"{', '.join(errors)} could not be asked",
            next_step="invoke workers.list" + "".join(f" --cluster {name}" for name in errors),
        )


def show(found: Sequence[tuple[Care, Sequence[Added]]], console: Console, *, as_json: bool) -> None:
    """Print workers, each with who looks after it."""
    entries = [_entry(care, worker) for care, workers in found for worker in workers]
    if as_json:
        console.json({"workers": entries})
        return
    if not entries:
        console.say("no workers were added")
        return
    console.table(
        ("cluster", "worker", "slice", "capacity", "state", "joined", "image", "owner", "trouble"),
        [
            (
                *(entry[key] for key in ("cluster", "name", "slice", "capacity", "state")),
                f"{entry['joined']}/{entry['machines']}" if entry["machines"] else "",
                "current" if entry["current"] else "differs",
                *(entry[key] for key in ("owner", "trouble")),
            )
            for entry in entries
        ],
    )


def capacity_named(text: str) -> Capacity:
    """The capacity that an operator means.

    Raises:
        UsageError: there is none such.
    """
    try:
        return Capacity(text.replace("_", "-"))
    except ValueError:
        names = ", ".join(Capacity)
        raise UsageError(f"--capacity {text}: not one of {names}") from None


def _entry(care: Care, worker: Added) -> dict[str, object]:
    return {
        "cluster": care.cluster,
        "name": care.short(worker),
        "node": worker.name,
        "slice": worker.accelerator_type,
        "capacity": worker.capacity,
        "state": worker.state,
        "slice_state": worker.node,
        "machines": worker.machines,
        "joined": worker.joined,
        "told": list(worker.told),
        "image": worker.image,
        "current": worker.script.startswith(care.script),
        "owner": worker.owner,
        "trouble": worker.trouble,
    }
