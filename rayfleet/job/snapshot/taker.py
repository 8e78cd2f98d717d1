"""Take a backup: look, fetch, look again until nothing new has come, keep, verify."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rayfleet.bars import readable
from rayfleet.errors import ToolFailed
from rayfleet.job.snapshot.merge import carried_over
from rayfleet.job.snapshot.parse import NO_SELECTOR
from rayfleet.job.snapshot.source import Look, Source
from rayfleet.job.vault.model import Backup, SavedJob, SavedPackage
from rayfleet.job.vault.store import DamagedVault, Vault
from rayfleet.waiting import Clock, SystemClock

MORE_ROUNDS = 3
"""How often jobs that came meanwhile are fetched too; on a busy cluster some always come."""

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
    narrate: Callable[[str], None],
    onto: Backup | None = None,
    stopped: Collection[str] = (),
    once: bool = False,
    clock: Clock | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Backup:
    """Save every job of ``source`` that has not ended into ``vault``; return what was saved.

    A backup that lacks something is saved as well, and says so (``Backup.complete``). One that
    was interrupted is not there at all. With ``onto``, an earlier backup of the same jobs, what
    that has and has not ended since is in it too; the jobs of ``stopped`` have not ended when
    they are STOPPED. ``once`` is for a caller who looks for late jobs himself: a look that lacks
    nothing is not followed by another.

    Raises:
        Unreachable: the jobs could not be listed, or the connection was lost.
        ToolFailed: the head was replaced again and again, or what it says cannot be read.
        DamagedVault: the vault does not hold what it took.
    """
    with vault.incoming() as folder:
        take = _Taking(source, vault, folder, infrastructure, narrate, clock or SystemClock(), once)
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
            jobs=look.jobs,
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
    """One backup while it is taken. ``held`` are the packages that the vault has by now."""

    source: Source
    vault: Vault
    folder: Path
    infrastructure: Callable[[str, Mapping[str, str] | None], bool]
    narrate: Callable[[str], None]
    clock: Clock
    once: bool = False
    held: dict[str, SavedPackage] = field(default_factory=dict)

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
        look = self.source.look()
        jobs = tuple(
            replace(job, infrastructure=self.infrastructure(job.submission_id, job.metadata))
            for job in look.jobs
        )
        return replace(look, jobs=jobs)

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
        return any(NO_SELECTOR in job.missing for job in look.jobs) or any(
            uri not in self.held for uri in _uris(look.jobs)
        )


def _uris(jobs: Sequence[SavedJob]) -> tuple[str, ...]:
    """The packages that a restore needs, each once."""
    needed = (uri for job in jobs if not job.infrastructure for uri in job.packages)
    return tuple(dict.fromkeys(needed))


def _count(jobs: Sequence[SavedJob]) -> str:
    return "1 job has not ended" if len(jobs) == 1 else f"{len(jobs)} jobs have not ended"
