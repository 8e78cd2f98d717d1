"""Which jobs are the cluster's own: those that say so, and those that the fleet file names."""

from __future__ import annotations

import pytest

from rayfleet.job.infrastructure import infrastructure_rule


@pytest.mark.parametrize(
    ("submission_id", "metadata", "expected"),
    [
        ("cleanup-20261121", None, True),
        ("cleanup-", {}, True),
        ("cron", {"owner": "ada"}, True),
        ("my-cleanup-1", None, False),
        ("CLEANUP-1", None, False),
        ("cron2", None, False),
        ("train", {"rayfleet_role": "infrastructure"}, True),
        ("train", {"rayfleet_role": "Infrastructure"}, False),
        ("train", {"role": "infrastructure"}, False),
        ("train", None, False),
    ],
)
def test_a_job_is_of_the_infrastructure_by_its_metadata_or_its_id(
    submission_id: str, metadata: dict[str, str] | None, expected: bool
) -> None:
    rule = infrastructure_rule(["cleanup-*", "cron"])
    assert rule(submission_id, metadata) is expected


def test_without_globs_only_the_metadata_counts() -> None:
    rule = infrastructure_rule(())
    assert not rule("cleanup-1", {"owner": "ada"})
    assert rule("cleanup-1", {"rayfleet_role": "infrastructure"})
