"""The gate of restored jobs: the head knows each, and none was dropped by the cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rayfleet.job.model import LOST_WITH_HEAD, JobStatus
from rayfleet.rollout.gates.gate import Question, Reading, Verdict

if TYPE_CHECKING:
    from rayfleet.rollout.gates.subject import Subject


def restored(ids: Collection[str]) -> Question:
    """The gate for the jobs of these submission ids."""

    def ask(subject: Subject) -> Reading:
        rows = {job.submission_id: job for job in subject.jobs().list()}
        lost = [one for one in ids if one not in rows]
        lost += [
            one
            for one in ids
            if one in rows
            and rows[one].status is JobStatus.FAILED
            and rows[one].error_type in LOST_WITH_HEAD
        ]
        if lost:
            return Reading(Verdict.FAIL, f"{len(lost)} of {len(ids)} lost: {', '.join(lost)}")
        return Reading(Verdict.PASS, f"{len(ids)} jobs are there")

    return Question(name="restored jobs", needs=("health",), ask=ask)
