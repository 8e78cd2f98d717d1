"""Give the jobs of a backup back to a cluster: each once, under its own id, exactly as it was."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.model import Job, JobExists, JobKind, JobStatus, Submittable
from rayfleet.job.redaction import redacted
from rayfleet.job.restore.decide import Action, Decision, Settled, decide
from rayfleet.job.restore.packages import PackageHost, Packages, Shelf
from rayfleet.job.restore.report import JobOutcome, Outcome, Report
from rayfleet.job.restore.watch import Lists, waits, watch_starts
from rayfleet.job.vault.model import Backup, SavedJob
from rayfleet.waiting import Clock, SystemClock

PER_SECOND = 5.0
"""Submits per second. The start of a supervisor costs 1.3 s of one core (Ray 2.60, measured with
20 jobs on 2 cores), so that 5 a second keep a head of 8 cores busy and not more."""

WATCH_SECONDS = 60.0
SETTLE_SECONDS = 5.0
"""How long a head that kept its records takes to see which jobs it lost: Ray 2.60 looks once a
second (JobManager.JOB_MONITOR_LOOP_PERIOD_S), beginning with the first submit."""


class Jobs(PackageHost, Lists, Protocol):
    """What a restore asks of a head; :class:`~rayfleet.job.client.JobClient` is one."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""

    def submit(self, request: Submittable) -> str:
        """Submit a job; the same one sent twice runs once."""

    def delete(self, job_id: str) -> bool:
        """Make the head forget an ended job."""


class Archive(Shelf, Protocol):
    """What a restore asks of the vault."""

    def endings_after(
        self, backup: Backup, *, stopped: Collection[str] = ()
    ) -> Mapping[str, JobStatus]:
        """How jobs ended according to newer backups of the same cluster."""


def restore(
    client: Jobs,
    vault: Archive,
    backup: Backup,
    *,
    only: Sequence[str] = (),
    stopped: Collection[str] = (),
    emptied: bool = False,
    per_second: float | None = None,
    watch: float | None = None,
    narrate: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> Report:
    """Give the jobs of ``backup``, or those that ``only`` names, back to the cluster.

    Packages go first and are proved to be there; then the jobs follow in the order of their
    start, each under its own id, and of those that Ray starts at once ``per_second`` at most
    (default: 5); then they are watched for up to ``watch`` seconds (default: 60) while they
    start. A job that the head has already is
    not submitted again, so that this may be run twice, or after it was killed at any point.

    The jobs of ``stopped`` were stopped in order to be given back: that they are STOPPED is no
    ending. With ``emptied`` nothing of the cluster was left since the backup: those jobs that
    are there already are watched as well, and one that the cluster drops is submitted again.

    Raises:
        UsageError: ``only`` names a job that the backup does not give back.
        Unreachable: the head stopped answering; what was submitted stays.
    """
    jobs = _chosen(backup, only)
    command = _command(client.cluster, backup, only, stopped)
    run = _Restore(
        client,
        vault,
        backup,
        jobs,
        stopped=stopped,
        emptied=emptied,
        narrate=narrate,
        clock=clock or SystemClock(),
    )
    try:
        outcomes = run.all(
            PER_SECOND if per_second is None else per_second,
            WATCH_SECONDS if watch is None else watch,
        )
    except Unreachable as error:
        raise Unreachable(error.what, why=error.why, next_step=command) from error
    return _report(client.cluster, backup, only, outcomes, stopped)


def plan_restore(
    client: Lists,
    vault: Archive,
    backup: Backup,
    *,
    only: Sequence[str] = (),
    stopped: Collection[str] = (),
) -> Report:
    """What :func:`restore` would do, from what the head says now. Nothing is changed.

    A head that kept its records over a restart may still call jobs RUNNING that it has lost: only
    a submission makes it look.

    Raises:
        UsageError: ``only`` names a job that the backup does not give back.
        Unreachable: the head does not answer.
    """
    rows, endings = _submissions(client), vault.endings_after(backup, stopped=stopped)
    outcomes = {}
    for job in _chosen(backup, only):
        name = job.submission_id
        decision = decide(job, rows.get(name), ended=endings.get(name), stopped=name in stopped)
        if decision is Action.REPLACE:
            decision = Settled(
                outcome=Outcome.PLANNED, reason="the head has a lost job under its id"
            )
        elif decision is Action.SUBMIT:
            decision = Settled(outcome=Outcome.PLANNED)
        outcomes[name] = decision
    return _report(backup.cluster, backup, only, outcomes, stopped)


def _report(
    cluster: str,
    backup: Backup,
    only: Sequence[str],
    outcomes: Mapping[str, Settled],
    stopped: Collection[str],
) -> Report:
    everything = not only
    return Report(
        cluster=cluster,
        backup=backup.id,
        command=_command(cluster, backup, only, stopped),
        jobs=tuple(_named(job, outcomes[job.submission_id]) for job in _chosen(backup, only)),
        infrastructure=tuple(
            job.submission_id for job in backup.jobs if job.infrastructure and everything
        ),
        unrestorable=backup.unrestorable if everything else (),
    )


def _submissions(client: Lists) -> Mapping[str, Job]:
    return {
        job.submission_id: job
        for job in client.list()
        if job.kind is JobKind.SUBMISSION and job.submission_id
    }


class _Restore:
    """One restore. ``_outcomes`` fills up until it has every job."""

    def __init__(
        self,
        client: Jobs,
        vault: Archive,
        backup: Backup,
        jobs: Sequence[SavedJob],
        *,
        stopped: Collection[str],
        emptied: bool,
        narrate: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._stopped = stopped
        self._emptied = emptied
        self._endings = vault.endings_after(backup, stopped=stopped)
        self._packages = Packages(client, vault, backup, narrate=narrate, clock=clock)
        self._narrate = narrate
        self._clock = clock
        self._outcomes: dict[str, Settled] = {}

    def all(self, per_second: float, watch: float) -> Mapping[str, Settled]:
        """Decide, bring the packages, submit and watch."""
        intended = self._decide(self._rows())
        watched = self._there() if self._emptied else []
        if intended:
            self._packages.bring(uri for job, _ in intended for uri in job.packages)
            watched += self._submit_all(intended, 1 / per_second)
        if watched:
            self._narrate(f"watching the start of {len(watched)}")
            starts = watch_starts(watched, self._client, seconds=watch, clock=self._clock)
            for job in watched:
                self._settle(job, starts[job.submission_id], said=True)
        return self._outcomes

    def _there(self) -> list[SavedJob]:
        """The jobs that an earlier run has submitted and that have not ended."""
        found = ((job, self._outcomes.get(job.submission_id)) for job in self._jobs)
        alive = {JobStatus.PENDING.value, JobStatus.RUNNING.value}
        return [job for job, settled in found if settled is not None and settled.reason in alive]

    def _decide(self, rows: Mapping[str, Job]) -> list[tuple[SavedJob, Action]]:
        intended = []
        for job in self._jobs:
            known = rows.get(job.submission_id)
            decision: Decision = decide(
                job,
                known,
                ended=self._endings.get(job.submission_id),
                stopped=job.submission_id in self._stopped,
                emptied=self._emptied,
            )
            if isinstance(decision, Settled):
                self._settle(job, decision)
            else:
                intended.append((job, decision))
        return intended

    def _rows(self) -> Mapping[str, Job]:
        """What the head has under each id, once it knows itself which jobs it has lost."""
        rows = _submissions(self._client)
        doubtful = [
            job
            for job in self._jobs
            if (row := rows.get(job.submission_id)) is not None
            and row.status is JobStatus.RUNNING
            and row.started == job.started
        ]
        if not doubtful:
            return rows
        # A head that kept its records over a restart calls dead jobs RUNNING until the first
        # submit makes it look. This one is refused, because the id is taken.
        self._narrate(f"checking what the head says runs: {len(doubtful)}")
        with suppress(JobExists, ToolFailed):
            self._client.submit(doubtful[0])
        self._clock.sleep(SETTLE_SECONDS)
        return _submissions(self._client)

    def _submit_all(
        self, intended: Sequence[tuple[SavedJob, Action]], interval: float
    ) -> list[SavedJob]:
        submitted: list[SavedJob] = []
        due = self._clock.monotonic()
        for job, action in intended:
            self._packages.renew(job.packages)
            if (problem := self._packages.problem(job.packages)) is not None:
                self._settle(job, problem)
                continue
            self._clock.sleep(max(0.0, due - self._clock.monotonic()))
            # What waits for resources costs the head nothing until it has them.
            due = self._clock.monotonic() + (0.0 if waits(job) else interval)
            if (problem := self._submit(job, action)) is not None:
                self._settle(job, problem)
                continue
            self._narrate(f"restored {job.submission_id}")
            submitted.append(job)
        return submitted

    def _submit(self, job: SavedJob, action: Action) -> Settled | None:
        try:
            if action is Action.REPLACE:
                self._client.delete(job.submission_id)
            self._client.submit(job)
        except (Unreachable, Unauthorized):
            raise
        except RayfleetError as error:
            return Settled(outcome=Outcome.FAILED, reason=_reason(error, job))
        return None

    def _settle(self, job: SavedJob, settled: Settled, *, said: bool = False) -> None:
        self._outcomes[job.submission_id] = settled
        if said and settled.outcome is Outcome.RESTORED:
            return
        hard = settled.outcome in {Outcome.FAILED, Outcome.NOT_RESTORABLE}
        reason = f": {settled.reason}" if hard else ""
        self._narrate(f"{settled.outcome} {job.submission_id}{reason}")


def _chosen(backup: Backup, only: Sequence[str]) -> tuple[SavedJob, ...]:
    there = {job.submission_id: job for job in backup.jobs}
    unknown = [name for name in only if name not in there]
    left_out = [name for name in only if name in there and there[name].infrastructure]
    if unknown or left_out:
        why = [f"{name} is not in it" for name in unknown]
        why += [f"{name} belongs to the infrastructure" for name in left_out]
        raise UsageError(
            f"the backup {backup.id} does not give back {', '.join(unknown + left_out)}",
            why="; ".join(why),
            next_step=f"invoke jobs.vault --cluster {backup.cluster} --backup {backup.id}",
        )
    return tuple(job for job in backup.restorable if not only or job.submission_id in only)


def _command(cluster: str, backup: Backup, only: Sequence[str], stopped: Collection[str]) -> str:
    command = f"invoke jobs.restore --cluster {cluster} --backup {backup.id}"
    if not set(only).isdisjoint(stopped):
        command += " --stopped"
    return command + "".join(f" --job {shlex.quote(name)}" for name in only)


def _named(job: SavedJob, settled: Settled) -> JobOutcome:
    return JobOutcome(
        job_id=job.submission_id,
        owner=job.owner,
        outcome=settled.outcome,
        reason=settled.reason,
    )


def _reason(error: RayfleetError, job: SavedJob) -> str:
    text = f"{error.what}: {error.why}" if error.why else error.what
    return redacted(text, job.secrets)
