"""Cleanup policies and the versions they judge, as values. Pure: no network, no Google types.

The meaning of every field is Artifact Registry's own (``CleanupPolicy`` of its v1 API).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from rayfleet.fleet.model import Cleanup

MAX_POLICIES = 10
"""Policies that one repository may have (Artifact Registry's limit)."""

SHOWN_LENGTH = len("sha256:") + 12
SHOWN_PREFIXES = 3
"""What people see of a rule that names digests."""

_UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))
_OUR_DELETE = re.compile(r"delete-older-than-\d+[dhms]")
_OUR_KEEP = re.compile(r"keep-\d+")


class Action(StrEnum):
    """What a policy does with the versions that it matches. KEEP wins over DELETE.

    UNKNOWN is none that this version of rayfleet knows; it decides nothing here.
    """

    DELETE = "DELETE"
    KEEP = "KEEP"
    UNKNOWN = "UNKNOWN"


class TagState(StrEnum):
    """Which versions a condition looks at, by whether a tag points at them."""

    TAGGED = "TAGGED"
    UNTAGGED = "UNTAGGED"
    ANY = "ANY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """All that is set must hold; of the prefixes in one list, one must."""

    tag_state: TagState = TagState.ANY
    tag_prefixes: tuple[str, ...] = ()
    version_name_prefixes: tuple[str, ...] = ()
    package_name_prefixes: tuple[str, ...] = ()
    older_than: timedelta | None = None
    newer_than: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MostRecent:
    """The ``keep_count`` newest versions of each package (image name)."""

    keep_count: int
    package_name_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One cleanup policy. ``rule`` is None only for a kind that this version does not know."""

    id: str
    action: Action
    rule: Condition | MostRecent | None

    def __str__(self) -> str:
        return f"{self.id} ({self.action.value} {_described(self.rule)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One manifest in a repository. ``package`` is the image's name, ``digest`` ``sha256:…``.

    ``uploaded`` is when the digest first came (aware, UTC); ``children`` are the digests that
    an index refers to; ``size_bytes`` is what its manifest says, 0 when unknown.
    """

    package: str
    digest: str
    uploaded: datetime
    tags: tuple[str, ...] = ()
    media_type: str = ""
    size_bytes: int = 0
    children: tuple[str, ...] = ()


def desired_policies(cleanup: Cleanup) -> tuple[Policy, Policy]:
    """The two policies that ``cleanup`` means, named after their values.

    The DELETE needs the KEEP: alone it would empty a repository that was idle for its age.
    """
    delete = Policy(
        id=f"delete-older-than-{short_duration(cleanup.delete_older_than)}",
        action=Action.DELETE,
        rule=Condition(tag_state=TagState.ANY, older_than=cleanup.delete_older_than),
    )
    keep = Policy(
        id=f"keep-{cleanup.keep_most_recent}",
        action=Action.KEEP,
        rule=MostRecent(keep_count=cleanup.keep_most_recent),
    )
    return delete, keep


def is_ours(policy: Policy) -> bool:
    """True for a policy of the shape and name that :func:`desired_policies` gives, any value."""
    match policy.rule:
        case Condition(older_than=timedelta() as age):
            plain = policy.rule == Condition(tag_state=TagState.ANY, older_than=age)
            named = _OUR_DELETE.fullmatch(policy.id) is not None
            return policy.action is Action.DELETE and plain and named
        case MostRecent(package_name_prefixes=()):
            return policy.action is Action.KEEP and _OUR_KEEP.fullmatch(policy.id) is not None
        case _:
            return False


def short_duration(duration: timedelta) -> str:
    """``30d``, ``12h``, ``5m`` or ``90s``: the largest unit that divides ``duration``."""
    for suffix, unit in _UNITS:
        if duration >= unit and duration % unit == timedelta():
            return f"{duration // unit}{suffix}"
    return f"{int(duration.total_seconds())}s"


def _described(rule: Condition | MostRecent | None) -> str:
    match rule:
        case MostRecent():
            return " ".join([f"newest {rule.keep_count}", *_prefixes(rule.package_name_prefixes)])
        case Condition():
            parts = [rule.tag_state.value.lower()]
            if rule.older_than is not None:
                parts.append(f"older than {short_duration(rule.older_than)}")
            if rule.newer_than is not None:
                parts.append(f"newer than {short_duration(rule.newer_than)}")
            parts.extend(f"tag {prefix}*" for prefix in rule.tag_prefixes)
            parts.extend(_versions(rule.version_name_prefixes))
            return " ".join([*parts, *_prefixes(rule.package_name_prefixes)])
        case None:
            return "by a rule unknown to this version of rayfleet"


def _prefixes(prefixes: tuple[str, ...]) -> list[str]:
    return [f"of {prefix}*" for prefix in prefixes]


def _versions(prefixes: tuple[str, ...]) -> list[str]:
    shown = [f"version {prefix[:SHOWN_LENGTH]}*" for prefix in prefixes[:SHOWN_PREFIXES]]
    more = len(prefixes) - len(shown)
    return [*shown, f"and {more} more"] if more else shown
