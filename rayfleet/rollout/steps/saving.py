"""Before the stop: save the jobs, and prove that they are saved."""

from __future__ import annotations

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.preserve import require_complete
from rayfleet.job.vault.choice import Ambiguous, default_backup
from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.store import DamagedVault, NoBackup
from rayfleet.rollout.model import Output, Owed, Step, owed_document, owed_of
from rayfleet.rollout.steps.site import Site


def snapshot(site: Site) -> Output:
    """Save every job that has not ended.

    A head that is to be repaired and tells nothing is taken for lost with the jobs of the latest
    complete backup. On the way back it may be our own broken start, and an earlier try of this
    rollout may have ended the head: what was taken then is owed whether it answers or not.

    Raises:
        IncompleteBackup: a job could not be given back exactly.
        Unreachable: the head does not answer, or died on the way.
        NoBackup, Ambiguous: it is to be repaired, and no backup is certain to have its jobs.
    """
    try:
        backup = _taken(site)
    except Unauthorized:
        raise
    except (Unreachable, ToolFailed) as error:
        if site.back or site.headless:
            return _nothing_new(site, error)
        if "trouble" not in site.output(Step.PREFLIGHT):
            raise
        site.narrate("the head tells no jobs; taking the latest complete backup")
        backup = _latest(site)
    owed = (*_unpaid(site, backup), Owed(backup=backup.id, jobs=_names(backup)))
    return {
        "backup": backup.id,
        "jobs": list(_names(backup)),
        "owed": owed_document(owed),
        "unpreservable": [
            " ".join(part for part in (lost.kind.value, lost.name, lost.detail) if part)
            for lost in backup.unrestorable
        ],
    }


def verify(site: Site) -> Output:
    """Read the backups of all that is owed again, and every byte of their packages.

    Raises:
        DamagedVault: the vault does not hold what it took.
    """
    vault, packages, size = site.preserver.vault, 0, 0
    for owed in owed_of(site.output(Step.SNAPSHOT)):
        backup = vault.load(owed.backup)
        if problems := vault.problems(backup):
            raise DamagedVault(
                f"the backup {backup.id} of {site.cluster.name} is damaged",
                why="; ".join(problems),
                next_step=f"check the disk, then: invoke jobs.backup --cluster {backup.cluster}",
            )
        packages += len(backup.packages)
        size += sum(package.size for package in backup.packages)
    return {"packages": packages, "bytes": size}


def _taken(site: Site) -> Backup:
    site.mark()
    backup = site.preserver.backup(site.cluster, once=True)  # quiesce takes what comes later
    owed = {name for one in site.task.owed for name in one.jobs}
    doubtful = [line for line in backup.missing if line.partition(":")[0] not in owed]
    # What the way forward could not give back whole is in its own backup.
    if doubtful or not site.back:
        require_complete(backup)
    site.links.seen.add(site.cluster.name)
    return backup


def _latest(site: Site) -> Backup:
    name = site.cluster.name
    try:
        return default_backup(site.preserver.vault, name, site.narrate)
    except (NoBackup, Ambiguous) as error:
        # What they propose wants a head: to save its jobs, or to give them back.
        steps = [f"invoke restart --cluster {name} --unhealthy repair --no-preserve-jobs"]
        steps += [error.next_step] if isinstance(error, Ambiguous) else []
        next_step = "without its jobs: " + "; then: ".join(steps)
        raise type(error)(error.what, why=error.why, next_step=next_step) from error


def _nothing_new(site: Site, error: RayfleetError) -> Output:
    problem = f"{error.what}: {error.why}" if error.why else error.what
    site.narrate(f"no jobs saved but those of before: {problem}")
    return {
        "backup": "",
        "jobs": [],
        "owed": owed_document(site.task.owed),
        "unpreservable": [],
        "problem": " ".join(problem.split())[:300],
    }


def _unpaid(site: Site, backup: Backup) -> tuple[Owed, ...]:
    """What was taken before and not given back: neither there now, nor ended since."""
    there = {job.submission_id for job in backup.restorable}
    found = []
    for owed in site.task.owed:
        base = site.preserver.vault.load(owed.backup)
        ended = site.preserver.vault.endings_after(base, stopped=owed.stopped)
        jobs = tuple(name for name in owed.jobs if name not in there | ended.keys())
        found.append(Owed(backup=owed.backup, jobs=jobs, stopped=owed.stopped))
    return tuple(found)


def _names(backup: Backup) -> tuple[str, ...]:
    return tuple(job.submission_id for job in backup.restorable)
