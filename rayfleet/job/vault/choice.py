"""Which backup a restore takes when nobody named one."""

from __future__ import annotations

from collections.abc import Callable

from rayfleet.errors import UsageError
from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.records import Damaged
from rayfleet.job.vault.store import Vault

_SHOWN = 5


class Ambiguous(UsageError):
    """The latest backup lacks jobs that an earlier one has and that nobody saw end."""


def default_backup(vault: Vault, cluster: str, narrate: Callable[[str], None]) -> Backup:
    """The newest complete backup of ``cluster``.

    Newer ones that are not complete are narrated. A backup that was taken after the head was
    lost, or in the middle of a restore, hides the one that holds the lost jobs and must not
    pass for it.

    Raises:
        NoBackup: there is none.
        Ambiguous: an earlier head's backup has jobs that nobody saw end, and this one has not.
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
    raise Ambiguous(
        f"which backup of {cluster} is to be restored?",
        why=f"the latest, {latest.id}, is of a newer head and does not have all jobs; "
        f"{earlier.id} has {len(lost)} more that nobody saw end: {shown}",
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
