"""How two versions of a cluster config differ, and what that costs a running cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from enum import IntEnum
from typing import Any

import yaml

Path = tuple[str, ...]
ABSENT = "(nothing)"
SHORT = 160


class Cost(IntEnum):
    """What it takes to bring a change to a running cluster, from least to most."""

    NOTHING = 0
    FEWER_WORKERS = 1
    RESTART = 2
    NEW_VMS = 3
    NEW_IDENTITY = 4

    @property
    def words(self) -> str:
        """The cost in words, for operators."""
        return _WORDS[self]


_WORDS = {
    Cost.NOTHING: "nothing: `ray up` applies it while jobs run",
    Cost.FEWER_WORKERS: "no restart, but `ray up` ends the workers above the new maximum",
    Cost.RESTART: "a restart of Ray: running jobs end",
    Cost.NEW_VMS: "new VMs: running jobs end",
    Cost.NEW_IDENTITY: "a new identity: the running cluster would be left without an owner",
}

# Ray finds its VMs by these: another value means another cluster.
_IDENTITY: frozenset[Path] = frozenset(
    {
        ("cluster_name",),
        ("provider", "type"),
        ("provider", "project_id"),
        ("provider", "region"),
        ("provider", "availability_zone"),
    }
)
# The autoscaler reads these again on every round.
_LIVE: frozenset[str] = frozenset(
    {"min_workers", "max_workers", "idle_timeout_s", "idle_timeout_minutes", "upscaling_speed"}
)
# Ray relaunches a node whose launch hash (node_config, auth) changed, and never replaces a
# running container by one of another image or other options.
_MACHINE: frozenset[str] = frozenset({"auth", "docker", "provider", "head_node_type"})
_TYPES = "available_node_types"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key that differs, dotted; ``old`` and ``new`` are shown as the file would have them."""

    key: str
    cost: Cost
    old: str
    new: str

    @property
    def line(self) -> str:
        """``key: old -> new``, or only the key if that would be long."""
        both = f"{self.old} -> {self.new}"
        return self.key if len(both) > SHORT else f"{self.key}: {both}"


def compare(old: str, new: str) -> tuple[Change, ...]:
    """What differs between two configs, key by key; comments and layout do not count."""
    before, after = _parsed(old), _parsed(new)
    if before is None or after is None:
        return (
            Change(key="the whole file", cost=Cost.NEW_VMS, old="not a config", new="a config"),
        )
    return tuple(_changes(before, after))


def summarize(changes: Sequence[Change]) -> tuple[str, ...]:
    """The changes as lines, by cost; equal changes of several node types make one line."""
    lines: list[str] = []
    for cost in sorted({change.cost for change in changes}):
        lines.append(f"costs {cost.words}")
        alike: dict[tuple[str, str, str], list[Change]] = {}
        for change in changes:
            if change.cost is cost:
                tail = change.key.rpartition(".")[2]
                alike.setdefault((tail, change.old, change.new), []).append(change)
        for group in alike.values():
            more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
            lines.append(f"  {group[0].line}{more}")
    return tuple(lines)


def unified(name: str, old: str, new: str) -> str:
    """The difference as a unified diff; ``name`` is the file's."""
    lines = unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"{name} (now)",
        f"{name} (new)",
    )
    return "".join(lines)


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        config = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    was, will = dict(_leaves(before, ())), dict(_leaves(after, ()))
    for path in sorted(was.keys() | will.keys()):
        old, new = was.get(path, ABSENT), will.get(path, ABSENT)
        if old != new:
            cost = _cost(path, before, after)
            if cost is Cost.NOTHING and path[-1] == "max_workers" and _lowered(old, new):
                cost = Cost.FEWER_WORKERS
            yield Change(key=".".join(path), cost=cost, old=str(old), new=str(new))


def _lowered(old: object, new: object) -> bool:
    return isinstance(old, int) and isinstance(new, int) and new < old


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield path, value


def _cost(path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> Cost:
    if path in _IDENTITY:
        return Cost.NEW_IDENTITY
    if path[0] in _MACHINE:
        return Cost.NEW_VMS
    if path[0] == _TYPES and len(path) > 1:
        return _node_type_cost(path, before.get(_TYPES) or {}, after.get(_TYPES) or {})
    return Cost.NOTHING if path[0] in _LIVE else Cost.RESTART


def _node_type_cost(path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> Cost:
    name = path[1]
    if name not in before:
        return Cost.NOTHING
    if name not in after or path[2:3] == ("node_config",):
        return Cost.NEW_VMS
    return Cost.NOTHING if path[2:3] and path[2] in _LIVE else Cost.RESTART
