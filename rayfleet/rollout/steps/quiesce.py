"""Quiet a cluster before its stop: jobs are asked to end, and every ending is accounted for.

Three endings look alike and are not: a job that we stopped comes back, one that ended by itself
never does, and one that its cluster dropped (a worker was preempted) comes back. What we ask is
noted before, so that another process can still tell them apart.

The same is done once more right before the head goes; see last_look.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.model import LOST_WITH_HEAD, Job, JobKind, JobStatus, UnknownJob
from rayfleet.job.preserve import require_complete
from rayfleet.job.snapshot.merge import without
from rayfleet.job.vault.model import Backup, SavedJob
from rayfleet.rollout.model import Output, Owed, Step, owed_document
from rayfleet.rollout.steps.site import Site

LATE_ROUNDS = 3
"""How often jobs that came meanwhile are saved and asked too; some always come."""

STOP_SECONDS = 45.0
"""How long jobs may take to end. Our heads send SIGKILL 30 s after SIGTERM
(RAY_JOB_STOP_WAIT_TIME_S of the templates); what goes on dies with the head and is owed."""

INTERVAL = 0.25
PATIENCE = 20.0  # seconds until a head that stopped answering counts as gone


def quiesce(site: Site) -> Output:
    """Ask the jobs to end, newest first; tell which of them are owed.

    A head that dies now changes nothing: all is saved, and what was not seen to have ended is
    owed.

    Raises:
        IncompleteBackup: a job that came meanwhile could not be saved.
        Locked: a rollout of another machine has the cluster.
    """
    if not site.backups:
        return {"owed": owed_document(site.task.owed), "ended": {}, "late": 0, "unstopped": []}
    work = Quieting.begin(site)
    problem = work.run()
    if problem:
        site.narrate(f"{problem}; all jobs are saved, going on")
    return work.result(problem)


@dataclass
class Quieting:
    """One cluster while it gets quiet.

    ``rows`` are the jobs as they were last seen, by id. ``asked`` are those that we may have
    asked to end, in an earlier process too, ``sent`` those that this process has asked. ``older``
    is owed from earlier backups, of earlier heads. ``saw``: all that runs was seen and is saved;
    ``gone``: there is no head any more.
    """

    site: Site
    backup: Backup
    older: tuple[Owed, ...]
    asked: set[str]
    sent: set[str] = field(default_factory=set)
    rows: Mapping[str, Job] = field(default_factory=dict)
    late: int = 0
    saw: bool = False
    gone: bool = False
    first: tuple[SavedJob, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Keep what the snapshot had."""
        self.first = self.backup.restorable

    @classmethod
    def begin(cls, site: Site) -> Quieting:
        """From the last backup of this way, the jobs that are owed, and what was noted."""
        owed, ours = site.task.owed, site.backups
        # On the way back there are older debts too; what is in the newer backup is paid from that.
        older = tuple(one for one in owed if one.backup not in ours)
        asked = {name for one in owed if one.backup in ours for name in one.stopped}
        noted = {note.get("backup") for note in site.task.notes}
        base = next((one for one in reversed(ours) if one not in noted), ours[0])
        work = cls(site, site.preserver.vault.load(base), older, asked)
        work.recall(site.task.notes)
        return work

    def recall(self, notes: Sequence[Output]) -> None:
        """Go on where an earlier process was killed."""
        for note in notes:
            if "backup" in note:
                self.backup = self.site.preserver.vault.load(str(note["backup"]))
                self._take_in(_names(note, "came"))
            self.asked |= _names(note, "asked")

    def run(self, *, patience: float = PATIENCE) -> str:
        """All rounds; returns why the head was given up, empty when it answered to the end.

        It is given up when it has not answered for ``patience`` seconds; with 0, and where it
        was in trouble before, one look at its store is all that can be hoped for.
        """
        if not patience or "trouble" in self.site.output(Step.PREFLIGHT):
            with suppress(Unreachable):
                self.site.mark()
            return self._account("")
        since = None
        while True:
            try:
                self._rounds()
                self._has_seen()
                return ""
            except Unauthorized:
                raise
            except (Unreachable, ToolFailed) as error:
                since = since or self.site.clock.monotonic()
                if self._is_gone() or self.site.clock.monotonic() - since > patience:
                    return self._account(error.what)
                self.site.clock.sleep(1.0)

    def result(self, problem: str) -> dict[str, object]:
        """What is owed after all; what ended by itself is taken out of the backup as well."""
        ended = {
            job.submission_id: row.status
            for job in self.backup.restorable
            if (row := self.rows.get(job.submission_id)) is not None and self._by_itself(row)
        }
        seen = dict.fromkeys(job.submission_id for job in (*self.first, *self.backup.restorable))
        if ended:
            draft = without(self.backup, ended, datetime.now(UTC))
            self.backup = self.site.preserver.vault.save(draft)
        names = [job.submission_id for job in self.backup.restorable]
        alive = [name for name in names if name in self.rows and not self.rows[name].ended]
        endings = self.backup.ended
        return {
            "backup": self.backup.id,
            "owed": self._owed(),
            "ended": {
                name: endings[name].value for name in seen if name in endings and name not in names
            },
            "late": self.late,
            "unstopped": alive,
        } | ({"problem": problem} if problem else {})

    def _owed(self) -> list[dict[str, object]]:
        names = tuple(job.submission_id for job in self.backup.restorable)
        stopped = tuple(name for name in names if name in self.asked)
        return owed_document(
            (*self.older, Owed(backup=self.backup.id, jobs=names, stopped=stopped))
        )

    def _has_seen(self) -> None:
        self.saw = True
        self.site.links.seen.add(self.site.cluster.name)

    def _rounds(self) -> None:
        self.site.mark()
        for left in range(LATE_ROUNDS, -1, -1):
            self._look()
            came = self._came()
            if came:
                self._save(came)
            asking = [row for row in self._running() if row.name not in self.sent]
            if not left or not (asking or came):
                return
            self._ask(asking)
            self._await()

    def _look(self) -> None:
        with self.site.preserver.jobs(self.site.cluster) as client:
            self.rows = {
                row.submission_id: row
                for row in client.list()
                if row.kind is JobKind.SUBMISSION and row.submission_id
            }

    def _came(self) -> list[str]:
        """Jobs that have not ended and that the backup does not have in this life."""
        known = {(job.submission_id, job.started) for job in self.backup.jobs}
        rule = self.site.preserver.infrastructure
        return [
            name
            for name, row in self.rows.items()
            if not row.ended and (name, row.started) not in known and not rule(name, row.metadata)
        ]

    def _save(self, came: list[str]) -> None:
        self.site.narrate(f"{len(came)} more came meanwhile")
        preserver = self.site.preserver
        backup = preserver.backup(self.site.cluster, onto=self.backup, stopped=self._ours())
        require_complete(backup)
        self.backup = backup
        self._take_in(set(came))
        self.site.note({"backup": backup.id, "came": came, "owed": self._owed()})

    def _take_in(self, came: set[str]) -> None:
        self.late += len(came)
        # A new job under an old id has not been asked.
        self.asked -= came
        self.sent -= came

    def _running(self) -> list[Job]:
        """The saved jobs that run, newest first, without those of the infrastructure."""
        found = (self.rows.get(job.submission_id) for job in reversed(self.backup.restorable))
        return [row for row in found if row is not None and row.status is JobStatus.RUNNING]

    def _ask(self, rows: list[Job]) -> None:
        if not rows:
            return
        self.site.narrate(f"asking {len(rows)} jobs to end")
        names = [row.name for row in rows]
        self.asked |= set(names)
        self.site.note({"asked": names, "owed": self._owed()})
        with self.site.preserver.jobs(self.site.cluster) as client:
            for name in names:
                with suppress(UnknownJob):
                    client.stop(name)
                self.sent.add(name)

    def _await(self) -> None:
        """Until none of the jobs that were asked runs, or time is up."""
        deadline = self.site.clock.monotonic() + STOP_SECONDS
        while True:
            self._look()
            running = any(row.name in self.sent for row in self._running())
            if not running or self.site.clock.monotonic() >= deadline:
                return
            self.site.clock.sleep(INTERVAL)

    def _by_itself(self, row: Job) -> bool:
        if not row.ended or (row.status is JobStatus.STOPPED and row.name in self._ours()):
            return False
        return not (row.status is JobStatus.FAILED and row.error_type in LOST_WITH_HEAD)

    def _ours(self) -> set[str]:
        """The jobs of ``asked`` of which the head has no later life under the same id."""
        lives = {job.submission_id: job.started for job in self.backup.jobs}
        return {
            name
            for name in self.asked
            if (row := self.rows.get(name)) is None or row.started == lives.get(name)
        }

    def _is_gone(self) -> bool:
        """Whether the cloud says that there is no head any more. Another one than before has jobs
        of its own, and is asked like any."""
        try:
            self.gone = not self.site.machines.nodes.head()
        except Unreachable:
            return False
        return self.gone

    def _account(self, problem: str) -> str:
        """Look once more where the dashboard does not answer: Ray's own store still may.

        Returns what is wrong, in one line.
        """
        if self._is_gone():
            return "the head is gone"
        preserver = self.site.preserver
        try:
            backup = preserver.backup(self.site.cluster, onto=self.backup, stopped=self.asked)
            require_complete(backup)
        except RayfleetError as error:
            return problem or error.what
        self.backup, self.rows = backup, {}
        self._has_seen()
        return problem or "it was not healthy before"


def _names(note: Output, key: str) -> set[str]:
    value = note.get(key, [])
    return {str(name) for name in value} if isinstance(value, list) else set()
