"""Between the client library's messages and our values, both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from rayfleet.registry.policy import Action, Condition, MostRecent, Policy, TagState, Version

if TYPE_CHECKING:
    from google.cloud import artifactregistry_v1 as ar

E = TypeVar("E", bound=StrEnum)


def policy_from(key: str, message: ar.CleanupPolicy) -> Policy:
    """The value of one entry of ``Repository.cleanup_policies``."""
    rule: Condition | MostRecent | None = None
    if "most_recent_versions" in message:
        recent = message.most_recent_versions
        rule = MostRecent(
            keep_count=recent.keep_count,
            package_name_prefixes=tuple(recent.package_name_prefixes),
        )
    elif "condition" in message:
        rule = _condition_from(message.condition)
    return Policy(id=key, action=_named(Action, message.action, Action.UNKNOWN), rule=rule)


def policy_message(policy: Policy) -> ar.CleanupPolicy:
    """The message of ``policy``; the map's key is its id too.

    Raises:
        ValueError: the policy has no rule.
    """
    from google.cloud import artifactregistry_v1 as ar

    message = ar.CleanupPolicy(id=policy.id, action=policy.action.value)
    match policy.rule:
        case Condition() as condition:
            message.condition = _condition_message(condition)
        case MostRecent() as recent:
            message.most_recent_versions = ar.CleanupPolicyMostRecentVersions(
                keep_count=recent.keep_count,
                package_name_prefixes=list(recent.package_name_prefixes),
            )
        case None:
            raise ValueError(f"policy {policy.id} has no rule")
    return message


def version_from(image: ar.DockerImage) -> Version:
    """The value of one listed image, whose name ends in ``/dockerImages/NAME@sha256:…``."""
    package, _, digest = image.name.rpartition("/")[2].partition("@")
    uploaded = image.upload_time.timestamp() if "upload_time" in image else 0.0
    return Version(
        package=unquote(package),
        digest=digest,
        uploaded=datetime.fromtimestamp(uploaded, UTC),
        tags=tuple(sorted(image.tags)),
        media_type=image.media_type,
        size_bytes=image.image_size_bytes,
        children=tuple(manifest.digest for manifest in image.image_manifests),
    )


def _condition_from(message: ar.CleanupPolicyCondition) -> Condition:
    return Condition(
        tag_state=_named(TagState, message.tag_state, TagState.ANY),
        tag_prefixes=tuple(message.tag_prefixes),
        version_name_prefixes=tuple(message.version_name_prefixes),
        package_name_prefixes=tuple(message.package_name_prefixes),
        older_than=message.older_than if "older_than" in message else None,
        newer_than=message.newer_than if "newer_than" in message else None,
    )


def _named(kind: type[E], member: IntEnum, fallback: E) -> E:
    """The member of ``kind`` with the same name; a newer server's number has no name."""
    return kind.__members__.get(getattr(member, "name", ""), fallback)


def _condition_message(condition: Condition) -> ar.CleanupPolicyCondition:
    from google.cloud import artifactregistry_v1 as ar

    message = ar.CleanupPolicyCondition(
        tag_state=condition.tag_state.value,
        tag_prefixes=list(condition.tag_prefixes),
        version_name_prefixes=list(condition.version_name_prefixes),
        package_name_prefixes=list(condition.package_name_prefixes),
    )
    if condition.older_than is not None:
        message.older_than = condition.older_than
    if condition.newer_than is not None:
        message.newer_than = condition.newer_than
    return message
