"""Take a backup: look, fetch, look again until nothing new has come, keep, verify."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rayfleet.bars import readable
from rayfleet.errors import RayfleetError, ToolFailed
from rayfleet.job.model import Job, JobKind, UnreadableJob
from rayfleet.job.snapshot.merge import carried_over
from rayfleet.job.snapshot.parse import NO_SELECTOR
from rayfleet.job.snapshot.source import Look, Source
from rayfleet.job.vault.model import Backup, SavedJob, SavedPackage
from rayfleet.job.vault.store import DamagedVault, Vault
from rayfleet.waiting import Clock, SystemClock

MORE_ROUNDS = 3
"""How often jobs that came meanwhile are fetched too; on a busy cluster some always come."""

ONLY_LISTED = "everything: the dashboard lists it, and Ray's store does not have it"
"""The job would be lost without a word where this Ray keeps its jobs in a way unknown to us."""

SETTLE_SECONDS = 1.0
"""Before another look at a job that Ray is just starting."""


class _HeadReplaced(Exception):
    """The head that is there now is not the one that was looked at."""


def take_backup(
    source: Source,
    vault: Vault,
    *,
    cluster: str,
    identity: str,
    infrastructure: Callable[[str, Mapping[str, str] | None], bool],
    dashboard: Callable[[], Sequence[Job]],
    narrate: Callable[[str], None],
    onto: Backup | None = None,
    stopped: Collection[str] = (),
    once: bool = False,
    clock: Clock | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Backup:
    """Save every job of ``source`` that has not ended into ``vault``; return what was saved.

    ``dashboard`` lists the jobs as the head's dashboard does, which reads them in another way. One
    that it lists as unfinished and ``source`` does not have makes the backup incomplete. Where it
    fails, that is said, and the backup is made without it: a broken dashboard is why somebody
    restarts a head.

    A backup that lacks something is saved as well, and says so (``Backup.complete``). One that
    was interrupted is not there at all. With ``onto``, an earlier backup of the same jobs, what
    that has and has not ended since is in it too; the jobs of ``stopped`` have not ended when
    they are STOPPED. ``once`` is for a caller who looks for late jobs himself: a look that lacks
    nothing is not followed by another.

    Raises:
        Unreachable: the jobs could not be listed, or the connection was lost.
        ToolFailed: the head was replaced again and again, or what it says cannot be read; so
            also UnreadableJob, of a dashboard that answers.
        DamagedVault: the vault does not hold what it took.
    """
    with vault.incoming() as folder:
        clock = clock or SystemClock()
        take = _Taking(source, vault, folder, infrastructure, dashboard, narrate, clock, once)
        take.held.update({package.uri: package for package in onto.packages} if onto else {})
        try:
            look = take.everything()
        except _HeadReplaced:
            narrate("the head was replaced meanwhile; starting over")
            look = _again(take, cluster)
        needed = _uris(look.jobs)
        draft = Backup(
            cluster=cluster,
            identity=identity,
            taken=now(),
            session=look.session,
            ray_version=look.ray_version,
            jobs=tuple(sorted((*look.jobs, *take.unseen), key=lambda job: job.started)),
            packages=tuple(take.held[uri] for uri in needed if uri in take.held),
            unrestorable=look.unrestorable,
            ended=look.ended,
        )
        saved = vault.save(carried_over(onto, draft, stopped) if onto else draft)
        narrate("written")
        if vault.load(saved.id) != saved:
            raise DamagedVault(
                f"the backup {saved.id} is not what was written",
                next_step="check the disk, then run the same command again",
            )
        narrate("verified")
    return saved


def _again(take: _Taking, cluster: str) -> Look:
    take.held.clear()
    try:
        return take.everything()
    except _HeadReplaced:
        raise ToolFailed(
            f"{cluster}: could not save the jobs",
            why="its head is replaced again and again",
            next_step=f"invoke status --cluster {cluster}",
        ) from None


@dataclass
class _Taking:
    """One backup while it is taken. ``held`` are the packages that the vault has by now,
    ``unseen`` the jobs that only the dashboard knew at the last look."""

    source: Source
    vault: Vault
    folder: Path
    infrastructure: Callable[[str, Mapping[str, str] | None], bool]
    dashboard: Callable[[], Sequence[Job]] | None
    narrate: Callable[[str], None]
    clock: Clock
    once: bool = False
    held: dict[str, SavedPackage] = field(default_factory=dict)
    unseen: tuple[SavedJob, ...] = ()

    def everything(self) -> Look:
        """The last of several looks: what it has and can be fetched is held."""
        look = self._look()
        self.narrate(_count(look.jobs))
        for _ in range(1 + MORE_ROUNDS):
            self._fetch(look)
            if self.once and not self._lacks(look):
                break
            if any(NO_SELECTOR in job.missing for job in look.jobs):
                self.clock.sleep(SETTLE_SECONDS)
            before, look = look, self._look()
            if look.session != before.session:
                raise _HeadReplaced
            if not self._open(before, look):
                break
        return look

    def _look(self) -> Look:
        # Listed before: whatever ran then is in the look, or has ended since.
        listed = self._listed()
        look = self.source.look()
        known = {job.submission_id for job in look.jobs} | look.ended.keys()
        self.unseen = self._marked(row for row in listed if row.submission_id not in known)
        return replace(look, jobs=self._marked(look.jobs))

    def _marked(self, jobs: Iterable[SavedJob]) -> tuple[SavedJob, ...]:
        return tuple(
            replace(job, infrastructure=self.infrastructure(job.submission_id, job.metadata))
            for job in jobs
        )

    def _listed(self) -> tuple[SavedJob, ...]:
        """The jobs that have not ended, by the dashboard; none once it has failed."""
        if self.dashboard is None:
            return ()
        try:
            rows = self.dashboard()
        except UnreadableJob:
            raise
        except RayfleetError as error:
            self.dashboard = None
            self.narrate(
                "the dashboard does not list the jobs, so nobody checks that none is missing: "
                f"{error.why or error.what}"
            )
            return ()
        return tuple(
            SavedJob(
                submission_id=row.submission_id,
                status=row.status,
                started=row.started,
                entrypoint=row.entrypoint,
                metadata=row.metadata,
                missing=(ONLY_LISTED,),
            )
            for row in rows
            if row.kind is JobKind.SUBMISSION and row.submission_id and not row.ended
        )

    def _fetch(self, look: Look) -> None:
        lacking = [uri for uri in _uris(look.jobs) if uri not in self.held]
        if not lacking:
            return
        for uri, path in self.source.fetch(lacking, self.folder).items():
            package = self.vault.keep(uri, path)
            self.held[uri] = package
            self.narrate(f"saved {uri} ({readable(package.size)})")

    def _open(self, before: Look, look: Look) -> bool:
        """True while another round may bring more."""
        known = {(job.submission_id, job.started) for job in before.jobs}
        if any((job.submission_id, job.started) not in known for job in look.jobs):
            return True
        return self._lacks(look)

    def _lacks(self, look: Look) -> bool:
        """True while something of the jobs that were seen is missing."""
        return (
            bool(self.unseen)
            or any(NO_SELECTOR in job.missing for job in look.jobs)
            or any(uri not in self.held for uri in _uris(look.jobs))
        )


def _uris(jobs: Sequence[SavedJob]) -> tuple[str, ...]:
    """The packages that a restore needs, each once."""
    needed = (uri for job in jobs if not job.infrastructure for uri in job.packages)
    return tuple(dict.fromkeys(needed))


def _count(jobs: Sequence[SavedJob]) -> str:
    return "1 job has not ended" if len(jobs) == 1 else f"{len(jobs)} jobs have not ended"
