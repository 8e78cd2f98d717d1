"""What Artifact Registry's documentation says that cleanup policies do, written down once more.

https://cloud.google.com/artifact-registry/docs/repositories/cleanup-policy-overview

It shares no code with the package under test, and goes about it the other way round: it walks
over the policies and strikes versions off, where the package walks over the versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rayfleet.registry.policy import Action, Condition, MostRecent, Policy, Version


def documented_deletions(
    policies: Sequence[Policy], versions: Sequence[Version], *, now: datetime
) -> set[Version]:
    """What is gone when a sweep at ``now`` is over.

    A version that a delete policy and a keep policy match is kept. A version of an index that is
    there cannot be deleted: the registry refuses.
    """
    doomed: set[Version] = set()
    for policy in policies:
        if policy.action is Action.DELETE and isinstance(policy.rule, Condition):
            doomed.update(_meeting(policy.rule, versions, now))
    for policy in policies:
        if policy.action is not Action.KEEP:
            continue
        if isinstance(policy.rule, Condition):
            doomed.difference_update(_meeting(policy.rule, versions, now))
        elif isinstance(policy.rule, MostRecent):
            doomed.difference_update(_most_recent(policy.rule, versions))
    while True:
        refused = {
            child
            for parent in versions
            if parent not in doomed
            for child in doomed
            if child.package == parent.package and child.digest in parent.children
        }
        if not refused:
            return doomed
        doomed -= refused


def without_mercy(
    policies: Sequence[Policy], versions: Sequence[Version], *, now: datetime
) -> set[Version]:
    """As above for a registry that deletes the parts of an index that stays."""
    bare = {
        Version(package=v.package, digest=v.digest, uploaded=v.uploaded, tags=v.tags): v
        for v in versions
    }
    return {bare[each] for each in documented_deletions(policies, list(bare), now=now)}


def _meeting(condition: Condition, versions: Iterable[Version], now: datetime) -> list[Version]:
    """All that is set in a condition has to be met; one prefix of a list is enough."""
    left = list(versions)
    if condition.tag_state.value != "ANY":
        left = [v for v in left if bool(v.tags) == (condition.tag_state.value == "TAGGED")]
    if condition.tag_prefixes:
        left = [
            v for v in left if any(t.startswith(p) for t in v.tags for p in condition.tag_prefixes)
        ]
    if condition.version_name_prefixes:
        left = [
            v for v in left if any(v.digest.startswith(p) for p in condition.version_name_prefixes)
        ]
    if condition.package_name_prefixes:
        left = [
            v for v in left if any(v.package.startswith(p) for p in condition.package_name_prefixes)
        ]
    if condition.older_than is not None:
        left = [v for v in left if v.uploaded + condition.older_than < now]
    if condition.newer_than is not None:
        left = [v for v in left if v.uploaded + condition.newer_than > now]
    return left


def _most_recent(rule: MostRecent, versions: Sequence[Version]) -> list[Version]:
    kept: list[Version] = []
    for package in {version.package for version in versions}:
        if rule.package_name_prefixes and not package.startswith(rule.package_name_prefixes):
            continue
        own = [version for version in versions if version.package == package]
        own.sort(key=lambda each: (each.uploaded, each.digest))
        kept += own[-rule.keep_count :]
    return kept
