"""Which backup a restore takes when nobody named one."""

from __future__ import annotations

from collections.abc import Callable

from rayfleet.errors import UsageError
from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.records import Damaged
from rayfleet.job.vault.store import Vault

_SHOWN = 5


class NothingToRestore(UsageError):
    """The latest backup has no jobs, but an earlier one has some that nobody saw end."""


def default_backup(vault: Vault, cluster: str, narrate: Callable[[str], None]) -> Backup:
    """The newest complete backup of ``cluster``.

    Newer ones that are not complete are narrated. A backup that was taken after the head was
    lost hides the one that holds the lost jobs. It must not pass for it: when it has no jobs at
    all this raises, when it has some it narrates.

    Raises:
        NoBackup: there is none.
        NothingToRestore: it has no jobs, and an earlier one of another head has lost ones.
    """
    latest = vault.latest(cluster)
    for one in vault.backups(cluster):
        if one.id == latest.id:
            break
        narrate(f"{one.id} is newer than {latest.id}, but {_fault(one)}")
    earlier = _of_an_earlier_head(vault, latest)
    lost = _unaccounted(vault, earlier, latest) if earlier else ()
    if earlier is None or not lost:
        return latest
    shown = ", ".join(lost[:_SHOWN]) + (", ..." if len(lost) > _SHOWN else "")
    facts = f"{earlier.id} has {len(lost)} that nobody saw end: {shown}"
    if latest.restorable:
        narrate(f"{latest.id} is taken, the latest; an earlier head's {facts}")
        return latest
    raise NothingToRestore(
        f"the latest backup of {cluster} has no jobs to give back",
        why=f"{latest.id} was taken of a new head; {facts}",
        next_step=f"invoke jobs.restore --cluster {cluster} --backup {earlier.id}",
    )


def _fault(found: Backup | Damaged) -> str:
    return f"damaged: {found.why}" if isinstance(found, Damaged) else "incomplete"


def _of_an_earlier_head(vault: Vault, latest: Backup) -> Backup | None:
    complete = (
        one for one in vault.backups(latest.cluster) if isinstance(one, Backup) and one.complete
    )
    return next((one for one in complete if one.session != latest.session), None)


def _unaccounted(vault: Vault, earlier: Backup, latest: Backup) -> tuple[str, ...]:
    """The jobs of ``earlier`` that no later backup has, alive or ended."""
    known = {job.submission_id for job in latest.jobs} | set(vault.endings_after(earlier))
    names = (job.submission_id for job in earlier.restorable)
    return tuple(name for name in names if name not in known)
