"""The jobs of many clusters side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.errors import PartialFailure, RayfleetError, Unreachable
from rayfleet.job.model import Job
from rayfleet.job.redaction import redacted

if TYPE_CHECKING:
    from rayfleet.console import Console
    from rayfleet.fleet.model import Cluster, Fleet
    from rayfleet.project import Project

LIMIT = 16
SECONDS = 90.0
_ENTRYPOINT_WIDTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The jobs by cluster, and the clusters that gave none because they did not answer."""

    jobs: Mapping[str, tuple[Job, ...]]
    silent: Mapping[str, RayfleetError]

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the jobs; clusters that did not answer are narrated, or part of the JSON."""
        if as_json:
            console.json(self._document())
            return
        rows = [_row(cluster, job) for cluster, jobs in self.jobs.items() for job in jobs]
        console.table(["cluster", "job", "status", "owner", "started", "took", "entrypoint"], rows)
        for error in self.silent.values():
            console.say(str(error))

    def raise_failures(self) -> None:
        """Raise if a cluster did not answer.

        Raises:
            PartialFailure: others did.
            Unreachable: none did.
        """
        if not self.silent:
            return
        names = ", ".join(self.silent)
        if self.jobs:
            raise PartialFailure(f"no answer from {names}", next_step="invoke status")
        raise Unreachable(f"no cluster answers: {names}", next_step="invoke status")

    def _document(self) -> dict[str, object]:
        return {
            "clusters": {
                cluster: [job.document() for job in jobs] for cluster, jobs in self.jobs.items()
            },
            "unanswered": {cluster: error.what for cluster, error in self.silent.items()},
        }


def read_board(project: Project, fleet: Fleet, clusters: Sequence[Cluster]) -> Board:
    """Ask the heads of ``clusters`` for their jobs, 16 at once, each for at most 90 s."""
    from rayfleet.job.connection import open_jobs

    def ask(cluster: Cluster) -> tuple[Job, ...]:
        with open_jobs(project, fleet, cluster) as client:
            return client.list()

    return gather_board({cluster.name: partial(ask, cluster) for cluster in clusters})


def gather_board(
    questions: Mapping[str, Callable[[], tuple[Job, ...]]], *, timeout: float = SECONDS
) -> Board:
    """Ask all ``questions`` (by cluster) at once; one that fails does not hide the others."""
    from rayfleet.cluster.fanout import fan_out

    answers = fan_out(questions, limit=LIMIT, timeout=timeout, what="the jobs API")
    return Board(
        jobs={name: found for name, found in answers.items() if isinstance(found, tuple)},
        silent={name: error for name, error in answers.items() if isinstance(error, RayfleetError)},
    )


def _row(cluster: str, job: Job) -> tuple[str, ...]:
    # Masked before it is cut: half a secret is not recognised.
    entrypoint = " ".join(redacted(job.entrypoint).split())
    if len(entrypoint) > _ENTRYPOINT_WIDTH:
        entrypoint = entrypoint[: _ENTRYPOINT_WIDTH - 3] + "..."
    started = f"{job.start:%Y-%m-%d %H:%M:%S}" if job.start else ""
    return (cluster, job.name, job.status.value, job.owner, started, _took(job), entrypoint)


def _took(job: Job) -> str:
    if job.start is None:
        return ""
    seconds = ((job.end or datetime.now(UTC)) - job.start).total_seconds()
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
