"""The values of a rollout: what is planned for each cluster, and how it is to be done.

A plan is made once and frozen on disk; what has happened since is in the journal.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from rayfleet.fleet.model import OnFailure as OnFailure
from rayfleet.fleet.model import Unhealthy as Unhealthy

Output: TypeAlias = Mapping[str, object]
"""What a step leaves for later ones and for a resume: plain JSON, no secrets."""


class Step(StrEnum):
    """What is done to one cluster, in this order."""

    PREFLIGHT = "preflight"
    SNAPSHOT = "snapshot"
    VERIFY = "verify"
    QUIESCE = "quiesce"
    STOP = "stop"
    EMPTY = "nothing left"
    START = "start"
    GATES = "gates"
    PACKAGES = "packages"
    JOBS = "jobs"
    WATCH = "watch"
    CLOSE = "close"


class Direction(StrEnum):
    """Onto the target, or back to what ran before."""

    FORWARD = "forward"
    BACK = "back"


class Change(StrEnum):
    """What a rollout does with a cluster."""

    RESTART = "restart"
    START = "start"


_FOR_JOBS = frozenset(
    (Step.SNAPSHOT, Step.VERIFY, Step.QUIESCE, Step.PACKAGES, Step.JOBS, Step.WATCH)
)

TOUCHING = frozenset(Step) - {Step.PREFLIGHT, Step.SNAPSHOT, Step.VERIFY}
"""The steps that change a cluster: one that failed earlier is as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job that had not ended when the plan was made. ``entrypoint`` is redacted and short."""

    id: str
    owner: str
    status: str
    entrypoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One cluster of a plan.

    ``head`` is the head's node id when the plan was made, empty for none. Digests are
    ``sha256:…`` (empty: unknown), configs the SHA-256 of the generated file in hex. ``changes``
    are lines for people. ``previous`` tells whether the config that the cluster runs with is
    kept in the rollout's folder, so that it can be rolled back. ``workers`` counts live workers
    by node type. ``trouble`` says why the head is not healthy, empty when it is.
    ``jobs_problem`` says why the jobs could not be listed, which is not "no jobs";
    ``backup_problem`` why no backup has the jobs of a head that tells none.
    ``unpreservable`` has one line per driver, detached actor or Serve application.
    ``image_problem`` says why the region's registry could not give the wanted image when the
    plan was made. ``estimate`` is in seconds, None when nothing is known.
    """

    cluster: str
    identity: str
    project: str
    region: str
    zone: str
    change: Change
    why: str
    family: str = ""
    head: str = ""
    digest_now: str = ""
    digest_wanted: str = ""
    config_now: str = ""
    config_wanted: str = ""
    changes: tuple[str, ...] = ()
    previous: bool = False
    workers: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""
    jobs: tuple[PlannedJob, ...] = ()
    jobs_problem: str = ""
    backup_problem: str = ""
    unpreservable: tuple[str, ...] = ()
    image_problem: str = ""
    estimate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Clusters that are changed together, at most so many at once as the settings say.

    ``canary`` marks a wave of one that has to succeed before anything else is touched.
    """

    name: str
    clusters: tuple[str, ...]
    canary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a rollout is carried out.

    ``parallel`` clusters change at once, ``per_region`` of them in one region (0: no limit).
    ``max_failures`` is how many clusters may fail after they were touched, ``max_untouched``
    how many before, until nothing new is started. ``bake`` is in seconds per wave. With
    ``preserve_jobs`` False every running job dies.
    """

    parallel: int = 2
    per_region: int = 1
    max_failures: int = 0
    max_untouched: int = 0
    on_failure: OnFailure = OnFailure.STOP
    bake: float = 0.0
    preserve_jobs: bool = True
    unhealthy: Unhealthy = Unhealthy.FAIL
    only_outdated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A cluster that was chosen and is left alone, and why."""

    cluster: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole rollout before it begins.

    ``id`` sorts by time. ``operator`` is ``user@host``. ``command`` is the command line that
    makes such a plan again. ``waves`` name every target once. ``estimate`` is in seconds, None
    when a cluster's is unknown.
    """

    id: str
    fleet: str
    created: datetime
    operator: str
    command: str
    tool: str
    settings: Settings
    waves: tuple[Wave, ...]
    targets: Mapping[str, Target]
    skipped: tuple[Skipped, ...] = ()
    estimate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """Jobs that a cluster is to get back: ``jobs`` of the backup ``backup``, in its order.

    ``stopped`` are those of them that the rollout itself stopped: they come back although a
    head that kept its records says STOPPED.
    """

    backup: str
    jobs: tuple[str, ...]
    stopped: tuple[str, ...] = ()


def owed_of(output: Output) -> tuple[Owed, ...]:
    """The jobs that a step's output says are owed, in its order. Pure.

    Raises:
        ValueError: it says so in no list.
    """
    rows = output.get("owed", ())
    if not isinstance(rows, list | tuple):
        raise ValueError(f"what is owed is no list: {rows!r}")
    return tuple(
        Owed(
            backup=str(row["backup"]),
            jobs=tuple(map(str, row.get("jobs", ()))),
            stopped=tuple(map(str, row.get("stopped", ()))),
        )
        for row in rows
    )


def owed_after(before: tuple[Owed, ...], step: Step, output: Output) -> tuple[Owed, ...]:
    """What is owed once ``step`` has noted or left ``output``. Pure.

    What a snapshot has saved is owed only when the jobs may be stopped: from the intent of
    QUIESCE on.

    Raises:
        ValueError: it says so in no list.
    """
    return owed_of(output) if "owed" in output and step is not Step.SNAPSHOT else before


def restore_command(cluster: str, owed: Owed) -> str:
    """The command that gives ``cluster`` back what is owed; it is safe to run again. Pure."""
    words = ["invoke", "jobs.restore", "--cluster", cluster, "--backup", owed.backup]
    if owed.stopped:
        words.append("--stopped")
    return shlex.join([*words, *(word for name in owed.jobs for word in ("--job", name))])


def owed_document(owed: Sequence[Owed]) -> list[dict[str, object]]:
    """``owed`` as an output has it; backups of which nothing is owed are left out. Pure."""
    return [
        {"backup": one.backup, "jobs": list(one.jobs), "stopped": list(one.stopped)}
        for one in owed
        if one.jobs
    ]


def steps_of(target: Target, settings: Settings, direction: Direction) -> tuple[Step, ...]:
    """The steps of one cluster in their order. Pure.

    A cluster that did not run has no jobs to keep and nothing to stop; taking it back means
    stopping it.
    """
    if target.change is Change.START:
        if direction is Direction.BACK:
            return (Step.STOP, Step.EMPTY, Step.CLOSE)
        return tuple(s for s in Step if s not in _FOR_JOBS | {Step.STOP, Step.EMPTY})
    left_out = frozenset() if settings.preserve_jobs else _FOR_JOBS
    return tuple(step for step in Step if step not in left_out)
