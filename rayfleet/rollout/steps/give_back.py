"""After the gates: packages, jobs, and staying with them until they run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rayfleet.job.restore.report import Outcome
from rayfleet.job.restore.watch import dropped
from rayfleet.rollout.model import Output, Owed, restore_command
from rayfleet.rollout.steps.site import Site

if TYPE_CHECKING:
    from rayfleet.job.restore.report import JobOutcome

WATCH_ROUNDS = 3
"""How often a job is submitted again whose worker is preempted while it starts."""

_LOST = frozenset({Outcome.FAILED, Outcome.NOT_RESTORABLE})


def packages(site: Site) -> Output:
    """Bring the packages of all that is owed to the head, and prove that they are there."""
    count = 0
    problems: list[str] = []
    for owed in site.task.owed:
        backup = site.preserver.vault.load(owed.backup)
        brought, wrong = site.preserver.bring_packages(site.cluster, backup, only=owed.jobs)
        count += brought
        problems += wrong
    return {"packages": count, "problems": problems}


def jobs(site: Site) -> Output:
    """Submit all that is owed, each under its own id, unless it is there already.

    Raises:
        Locked: another rollout has the head now.
    """
    site.mark()
    found = [one for owed in site.task.owed for one in _restored(site, owed, watch=0.0)]
    return {"jobs": [one.document() for one in found]}


def watch(site: Site) -> Output:
    """Stay with the jobs until each runs or waits as it should; one that loses its worker
    meanwhile is submitted again."""
    found: dict[str, JobOutcome] = {}
    lost: list[tuple[Owed, list[str]]] = []
    for owed in site.task.owed:
        for _ in range(WATCH_ROUNDS):
            outcomes = _restored(site, owed, watch=None)
            if not any(o.outcome is Outcome.FAILED and dropped(o.reason) for o in outcomes):
                break
        found |= {one.job_id: one for one in outcomes}
        lost.append((owed, [one.job_id for one in outcomes if one.outcome in _LOST]))
    again = [replace(owed, jobs=tuple(names)) for owed, names in lost if names]
    return {
        "jobs": [one.document() for one in found.values()],
        "lost": [name for _, names in lost for name in names],
        "next": "; ".join(restore_command(site.cluster.name, owed) for owed in again),
    }


def _restored(site: Site, owed: Owed, *, watch: float | None) -> tuple[JobOutcome, ...]:
    report = site.preserver.restore(
        site.cluster,
        backup_id=owed.backup,
        only=owed.jobs,
        stopped=frozenset(owed.stopped),
        emptied=True,
        watch=watch,
    )
    return report.jobs
