"""What an operator sees of the vault: no value of a variable, and nothing that looks secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rayfleet.bars import readable
from rayfleet.job.needs import Needs
from rayfleet.job.redaction import MASK, redacted
from rayfleet.job.vault.model import Backup, SavedJob
from rayfleet.job.vault.pruning import Protect, Pruned
from rayfleet.job.vault.public import (
    backup_document,
    distinct,
    infrastructure_of,
    masked,
    pruned_document,
    row_document,
    saved_document,
    started_at,
    state_of,
    stored_size,
)
from rayfleet.job.vault.records import Damaged
from rayfleet.job.vault.store import Vault

if TYPE_CHECKING:
    from rayfleet.console import Console

NEEDS_YES = "invoke jobs.vault --prune --yes"
_ENTRYPOINT_WIDTH = 60


def show_saved(console: Console, backup: Backup, *, as_json: bool) -> None:
    """Print what a backup has just saved; what is missing is for the error that follows."""
    if as_json:
        console.json(saved_document(backup))
        return
    console.data(f"{backup.id}: {_summary(backup)}")
    for job in infrastructure_of(backup):
        console.say(f"left out, of the infrastructure: {job}")
    _say_lost(console, backup)


def show_backups(console: Console, vault: Vault, clusters: Sequence[str], *, as_json: bool) -> None:
    """Print the backups of ``clusters`` (none: of all), newest first, damaged ones too.

    What does not tell its cluster is shown always.
    """
    found = [one for one in vault.backups() if not clusters or one.cluster in {*clusters, ""}]
    if as_json:
        console.json({"backups": [row_document(one) for one in found]})
        return
    if not found:
        whose = f" of {', '.join(clusters)}" if clusters else ""
        console.say(f"no backups{whose} in {vault.root}; next: invoke jobs.backup --cluster NAME")
        return
    headers = ["id", "cluster", "taken", "jobs", "packages", "size", "state"]
    console.table(headers, [_row(one) for one in found])
    for one in found:
        if isinstance(one, Damaged):
            console.say(f"{one.id} is damaged: {one.why}")
        for line in one.missing if isinstance(one, Backup) else ():
            console.say(f"{one.id} is incomplete: {line}")


def show_backup(console: Console, vault: Vault, backup_id: str, *, as_json: bool) -> None:
    """Print one backup: its jobs and its packages, whose bytes are verified.

    Raises:
        NoBackup: there is none of that id.
        DamagedVault: its document is not what was written.
    """
    backup = vault.load(backup_id)
    problems = vault.problems(backup)
    if as_json:
        console.json(backup_document(backup, problems))
        return
    console.say(f"{backup.id}: {_summary(backup)}; {state_of(backup, problems)}")
    if backup.jobs:
        headers = ["job", "status", "owner", "started", "needs", "runtime env", "entrypoint"]
        console.table(headers, [_job_row(job) for job in backup.jobs])
    for job in infrastructure_of(backup):
        console.say(f"no restore gives it back, for it is of the infrastructure: {job}")
    _say_lost(console, backup)
    for line in backup.missing:
        console.say(f"missing: {line}")
    for problem in problems:
        console.say(f"damaged: {problem}")


def prune(
    console: Console,
    vault: Vault,
    age: timedelta,
    *,
    protect: Protect,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete what is older than ``age`` after asking, or with ``dry_run`` say what would go.
    What ``protect`` names stays, and is told.

    Raises:
        Declined: the operator said no, or nobody is there to ask.
        Locked: a backup is being written.
    """
    now = datetime.now(UTC)
    pruned = vault.plan_prune(age, now=now, protect=protect)
    if not as_json:
        for backup_id, why in pruned.kept.items():
            console.say(f"kept: {backup_id}, for {why}")
    if not (dry_run or pruned.nothing):
        if not as_json:
            _say_pruned(console, pruned, "to delete")
        console.confirm(f"delete {_pruned_text(pruned)}?", yes=yes, refused_next=NEEDS_YES)
        pruned = vault.prune(age, now=now, protect=protect)
    if as_json:
        console.json(pruned_document(pruned, dry_run=dry_run))
    elif dry_run:
        _say_pruned(console, pruned, "would delete")
        console.data(f"would delete {_pruned_text(pruned)}")
    else:
        console.data(f"deleted {_pruned_text(pruned)}")


def _row(found: Backup | Damaged) -> tuple[str, ...]:
    if isinstance(found, Damaged):
        return (found.id, found.cluster, _shown(found.taken), "", "", "", "damaged")
    count = str(len(distinct(found.packages)))
    size = readable(stored_size(found.packages))
    taken = _shown(found.taken)
    return (found.id, found.cluster, taken, str(len(found.jobs)), count, size, state_of(found))


def _job_row(job: SavedJob) -> tuple[str, ...]:
    entrypoint = " ".join(str(masked(job.entrypoint, job)).split())
    if len(entrypoint) > _ENTRYPOINT_WIDTH:
        entrypoint = entrypoint[: _ENTRYPOINT_WIDTH - 3] + "..."
    started = _shown(started_at(job))
    owner = str(masked(job.owner, job)) or "unknown"
    env = _env_text(job.runtime_env or {})
    return (job.submission_id, job.status.value, owner, started, _needs(job), env, entrypoint)


def _needs(job: SavedJob) -> str:
    needs = Needs(
        num_cpus=job.num_cpus or 0.0,
        num_gpus=job.num_gpus or 0.0,
        memory=job.memory or 0,
        resources=job.resources or {},
        labels=job.label_selector or {},
    )
    return "" if needs.nothing else needs.text()


def _env_text(env: Mapping[str, object]) -> str:
    """The keys of a runtime_env, and the names of its variables."""
    parts = []
    for key, value in env.items():
        names = value if key == "env_vars" and isinstance(value, Mapping) else {}
        parts.append(" ".join([key, *(f"{name}={MASK}" for name in names)]))
    return ", ".join(parts)


def _summary(backup: Backup) -> str:
    jobs = len(backup.jobs)
    if not jobs:
        return f"no jobs on {backup.cluster} that have not ended"
    packages = distinct(backup.packages)
    size = readable(stored_size(packages))
    return f"{_count(jobs, 'job')}, {_count(len(packages), 'package')}, {size}"


def _say_lost(console: Console, backup: Backup) -> None:
    for lost in backup.unrestorable:
        detail = f" ({redacted(lost.detail)})" if lost.detail else ""
        console.say(f"nobody can give it back: the {lost.kind} {lost.name}{detail}")


def _say_pruned(console: Console, pruned: Pruned, what: str) -> None:
    for backup_id in pruned.backups:
        console.say(f"{what}: {backup_id}")


def _pruned_text(pruned: Pruned) -> str:
    parts = [_count(len(pruned.backups), "backup"), _count(pruned.packages, "package")]
    parts += [f"{_count(pruned.leftovers, 'leftover')} of killed runs"] * bool(pruned.leftovers)
    return f"{', '.join(parts)} ({readable(pruned.size)})"


def _shown(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
