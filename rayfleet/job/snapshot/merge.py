"""One backup out of two looks at the same jobs: what was saved before, and what has come since.

A cluster whose jobs are stopped one by one never has all of them at once, and the backup that a
restore takes by itself is the newest one: it must hold everything that is still owed. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from rayfleet.job.model import JobStatus
from rayfleet.job.vault.model import Backup, SavedJob, SavedPackage, without_stopped


def carried_over(base: Backup, later: Backup, stopped: Collection[str] = ()) -> Backup:
    """``later`` with the jobs of ``base`` that have not ended by themselves since.

    Those of ``stopped`` that are STOPPED have not: they were stopped in order to be given back.
    """
    ended = without_stopped(later.ended, stopped)
    alive = {job.submission_id for job in later.jobs}
    kept = [job for job in base.jobs if job.submission_id not in alive | ended.keys()]
    return _with(later, (*kept, *later.jobs), (*base.packages, *later.packages), ended)


def without(base: Backup, ended: Mapping[str, JobStatus], taken: datetime) -> Backup:
    """``base`` as it is when the jobs of ``ended`` have ended by themselves; it has no id yet."""
    jobs = tuple(job for job in base.jobs if job.submission_id not in ended)
    draft = replace(base, id="", taken=taken)
    return _with(draft, jobs, base.packages, {**base.ended, **ended})


def _with(
    draft: Backup,
    jobs: Collection[SavedJob],
    packages: Collection[SavedPackage],
    ended: Mapping[str, JobStatus],
) -> Backup:
    ordered = tuple(sorted(jobs, key=lambda job: (job.started, job.submission_id)))
    held = {package.uri: package for package in packages}
    needed = dict.fromkeys(uri for job in ordered if not job.infrastructure for uri in job.packages)
    found = tuple(held[uri] for uri in needed if uri in held)
    return replace(draft, jobs=ordered, packages=found, ended=ended)
