"""How a restore ended: every job of the backup with one outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rayfleet.errors import RayfleetError
from rayfleet.job.redaction import redacted
from rayfleet.job.vault.model import Unrestorable

if TYPE_CHECKING:
    from rayfleet.console import Console


class NotRestored(RayfleetError):
    """A job of the backup could not be given back."""

    exit_code = 7


class Outcome(StrEnum):
    """What became of one job of a backup."""

    PLANNED = "would be restored"
    RESTORED = "restored"
    ALREADY_THERE = "already there"
    ENDED = "ended by itself"
    NOT_RESTORABLE = "not restorable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of ``job_id``. ``reason`` says why or in which state; it holds no secret."""

    job_id: str
    owner: str
    outcome: Outcome
    reason: str = ""

    def document(self) -> dict[str, object]:
        """The outcome as ``--json`` prints it."""
        return {
            "job": self.job_id,
            "owner": redacted(self.owner),
            "outcome": self.outcome.value,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcomes of one restore, in the order of the jobs' start.

    ``infrastructure`` are ids that were left out by rule. ``unrestorable`` ran beside the jobs
    and were never promised. ``command`` does the same restore again, which is always safe.
    """

    cluster: str
    backup: str
    command: str
    jobs: tuple[JobOutcome, ...]
    infrastructure: tuple[str, ...] = ()
    unrestorable: tuple[Unrestorable, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """How many jobs ended as ``outcome``."""
        return sum(job.outcome is outcome for job in self.jobs)

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print each job, and all that was left out; the counts are narrated."""
        if as_json:
            console.json(self.document())
            return
        rows = [
            (job.job_id, redacted(job.owner) or "unknown", job.outcome.value, job.reason)
            for job in self.jobs
        ]
        rows += [
            (name, "", "left out", "infrastructure: it is started with the cluster")
            for name in self.infrastructure
        ]
        rows += [
            (lost.name, "", Outcome.NOT_RESTORABLE.value, redacted(f"{lost.kind}: {lost.detail}"))
            for lost in self.unrestorable
        ]
        if rows:
            console.table(["job", "owner", "outcome", "reason"], rows)
        console.say(self.summary())

    def summary(self) -> str:
        """One line: how many jobs ended in which way."""
        counts = Counter(job.outcome for job in self.jobs)
        parts = [f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]]
        return f"{self.cluster}: {', '.join(parts) or 'no jobs to restore'} (from {self.backup})"

    def document(self) -> dict[str, object]:
        """The report as ``--json`` prints it."""
        return {
            "cluster": self.cluster,
            "backup": self.backup,
            "jobs": [job.document() for job in self.jobs],
            "infrastructure": list(self.infrastructure),
            "unrestorable": [
                {"kind": lost.kind.value, "name": lost.name, "detail": redacted(lost.detail)}
                for lost in self.unrestorable
            ],
        }

    def raise_failures(self) -> None:
        """Raise unless every job of the backup is back, was there or had ended.

        Raises:
            NotRestored: it names each job that is not, and why (exit code 7).
        """
        wrong = [
            job for job in self.jobs if job.outcome in {Outcome.FAILED, Outcome.NOT_RESTORABLE}
        ]
        if not wrong:
            return
        again = any(job.outcome is Outcome.FAILED for job in wrong)
        raise NotRestored(
            f"{self.cluster}: {len(wrong)} of {len(self.jobs)} jobs were not restored",
            why="\n  ".join(["", *(f"{job.job_id} {job.outcome}: {job.reason}" for job in wrong)]),
            next_step=self.command
            if again
            else f"invoke jobs.vault --cluster {self.cluster} --backup {self.backup}",
        )
