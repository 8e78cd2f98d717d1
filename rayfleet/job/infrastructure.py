"""Which jobs belong to the cluster itself, so that a restore leaves them out.

The scripts that bring a cluster up start such jobs themselves: one that was given back would
run twice. Nothing is guessed from what a job does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

ROLE = "rayfleet_role"
"""The metadata key with which a job says so itself."""

INFRASTRUCTURE = "infrastructure"

Rule = Callable[[str, Mapping[str, str] | None], bool]


def infrastructure_rule(globs: Sequence[str]) -> Rule:
    """The rule for a submission id and its metadata: true for a job of the infrastructure.

    It is one when its metadata has ``rayfleet_role: infrastructure``, or when its id matches
    one of ``globs`` (case counts), which is what ``jobs.infrastructure`` of the fleet file says.
    """

    def is_infrastructure(submission_id: str, metadata: Mapping[str, str] | None) -> bool:
        if (metadata or {}).get(ROLE) == INFRASTRUCTURE:
            return True
        return any(fnmatchcase(submission_id, glob) for glob in globs)

    return is_infrastructure
