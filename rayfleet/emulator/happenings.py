"""What happens in a cloud without anybody asking: for tests and rehearsals."""

from __future__ import annotations

from rayfleet.emulator.cloud import Cloud
from rayfleet.emulator.settling import settle
from rayfleet.emulator.state import GONE, Row


def preempt(cloud: Cloud, name: str) -> None:
    """Take back the spot machine or slice whose full or last name is ``name``.

    An instance stops; a slice stays as PREEMPTED and counts against the quota until it
    is deleted.

    Raises:
        KeyError: there is none.
    """
    with cloud.lock:
        settle(cloud)
        row = find(cloud, name)
        if "status" in row["view"]:
            row["view"]["status"] = "STOPPING"
            row["steps"] = [[cloud.now() + cloud.durations.shut_down, "TERMINATED"]]
        else:
            row["view"]["state"] = "PREEMPTED"
            row["steps"] = []
        settle(cloud)
        cloud.save()


def remove(cloud: Cloud, name: str) -> None:
    """Let a machine or slice vanish, as if somebody had deleted it elsewhere.

    Raises:
        KeyError: there is none.
    """
    with cloud.lock:
        find(cloud, name)["steps"] = [[cloud.now(), GONE]]
        settle(cloud)
        cloud.save()


def advance(cloud: Cloud, seconds: float) -> None:
    """Let time pass."""
    with cloud.lock:
        cloud.clock.advance(seconds)
        settle(cloud)
        cloud.save()


def find(cloud: Cloud, name: str) -> Row:
    """The row of a machine, a slice or a queued resource by its full or last name.

    Raises:
        KeyError: there is none.
    """
    for table in ("instances", "nodes", "queuedResources"):
        for full, row in cloud.state.table(table).items():
            if name in (full, full.rpartition("/")[2]):
                return row
    raise KeyError(name)
