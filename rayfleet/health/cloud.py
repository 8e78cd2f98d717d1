"""What a cluster holds in Google Cloud, read from its APIs, and how one thing of it is deleted.

Beside Ray's provider, which knows neither queued resources nor firewall rules. A thing is the
cluster's by Ray's label with exactly its identity; a firewall rule, which has no labels, by the
name of a node of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.google import CLUSTER, KIND, UNMANAGED, state
from rayfleet.errors import ToolFailed
from rayfleet.google_api import failure, service
from rayfleet.google_zone import Zone
from rayfleet.health.holding import Holding, Holdings, Kind, node_of_rule
from rayfleet.waiting import Clock, DeadlineExceeded, SystemClock, wait_until
from rayfleet.worker.queue import zone_of

DELETE_TIMEOUT = 300.0  # seconds until Google has ended what it accepted
DELETE_INTERVAL = 5.0
FOR_REUSE = "Ray keeps it to start it again (cache_stopped_nodes)"
PROTECTED = "it is protected from deletion"
SHARED = "slices of other owners are asked for with it"


@dataclass(frozen=True)
class GoogleHoldings:
    """The things of the cluster of ``config``. All methods raise :class:`Unreachable` when an API
    does not answer after a few tries, or refuses."""

    config: LaunchConfig
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def all(self) -> Holdings:
        """Everything.

        Raises:
            Unreachable: some API does not answer, or not for the whole zone.
        """
        nodes, queue = self._zone.slices(), self._zone.requests()
        machines = self._zone.pages(
            "list the VMs",
            self._compute.instances(),
            "items",
            filter=f"labels.{CLUSTER} = {self._identity}",
            **self._zonal,
        )
        rules = self._zone.pages(
            "list the firewall rules", self._compute.firewalls(), "items", project=self._project
        )
        ours = [row for row in nodes if self._is_ours(row)]
        others = {_last(row["name"]) for row in nodes if not self._is_ours(row)}
        return Holdings(
            things=(
                *(self._slice(row) for row in ours),
                *(self._queued(row) for row in queue if self._asks_for_ours(row)),
                *(self._machine(row) for row in machines if self._is_ours(row)),
                *(self._rule(row) for row in rules if node_of_rule(self._identity, row["name"])),
            ),
            others=frozenset(others),
        )

    def again(self, thing: Holding) -> Holding | None:
        """``thing`` as it is now; None when it is gone, or the cluster's no more."""
        find: dict[Kind, Callable[[], Any]] = {
            Kind.SLICE: lambda: self._nodes.get(name=self._zone.slice(thing.name)),
            Kind.QUEUED: lambda: self._queue.get(name=self._zone.request(thing.name)),
            Kind.VM: lambda: self._compute.instances().get(instance=thing.name, **self._zonal),
            Kind.FIREWALL: lambda: self._compute.firewalls().get(
                project=self._project, firewall=thing.name
            ),
        }
        row = self._zone.get(f"look at {thing.name}", find[thing.kind])
        if row is None:
            return None
        if thing.kind is Kind.QUEUED:
            return self._queued(row) if self._asks_for_ours(row) else None
        if thing.kind is Kind.FIREWALL:
            return self._rule(row)
        if not self._is_ours(row):
            return None
        return self._slice(row) if thing.kind is Kind.SLICE else self._machine(row)

    def node_exists(self, node: str) -> bool:
        """Whether there is a node of Ray's called so in the zone, whatever its labels say."""
        if node.endswith("-tpu"):
            full = self._zone.slice(node)
            row = self._zone.get(f"look for {node}", lambda: self._nodes.get(name=full))
        else:
            row = self._zone.get(
                f"look for {node}",
                lambda: self._compute.instances().get(instance=node, **self._zonal),
            )
        return row is not None

    def delete(self, thing: Holding) -> None:
        """Delete ``thing`` and wait until Google has done so; one that is gone is fine.

        Raises:
            ToolFailed: Google accepted it, and could not do it or has not in time.
        """
        delete: dict[Kind, Callable[[], Any]] = {
            Kind.SLICE: lambda: self._nodes.delete(name=self._zone.slice(thing.name)),
            # Not with force: then Google refuses what still has a slice.
            Kind.QUEUED: lambda: self._queue.delete(name=self._zone.request(thing.name)),
            Kind.VM: lambda: self._compute.instances().delete(instance=thing.name, **self._zonal),
            Kind.FIREWALL: lambda: self._compute.firewalls().delete(
                project=self._project, firewall=thing.name
            ),
        }
        doing = f"delete {thing.name}"
        operation = self._zone.get(doing, delete[thing.kind])
        if operation is None:
            return
        try:
            wait_until(
                lambda: self._ended(thing, doing, operation),
                what=f"the end of {thing.name}",
                timeout=DELETE_TIMEOUT,
                interval=DELETE_INTERVAL,
                clock=self.clock,
            )
        except DeadlineExceeded as error:
            raise ToolFailed(
                f"{thing.name} is still being deleted", why=error.what, next_step="invoke gc"
            ) from error

    def bucket_location(self, bucket: str) -> str:
        """Where a bucket is, in lower case: ``us-east5``, or ``us`` for several regions; empty
        when there is no such bucket."""
        api = self._zone.ask("reach Cloud Storage", lambda: service("storage", "v1"))
        row = self._zone.get(
            f"look at the bucket {bucket}", lambda: api.buckets().get(bucket=bucket)
        )
        return str((row or {}).get("location", "")).lower()

    @property
    def _identity(self) -> str:
        return self.config.identity

    @cached_property
    def _zone(self) -> Zone:
        return zone_of(self.config, self.clock)

    @property
    def _project(self) -> str:
        return self._zone.project

    @property
    def _zonal(self) -> Mapping[str, str]:
        return {"project": self._project, "zone": self._zone.zone}

    @cached_property
    def _compute(self) -> Any:
        return self._zone.ask("reach Compute Engine", lambda: service("compute", "v1"))

    @property
    def _nodes(self) -> Any:
        return self._zone.tpus.nodes()

    @property
    def _queue(self) -> Any:
        return self._zone.tpus.queuedResources()

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        return bool(row.get("labels", {}).get(CLUSTER) == self._identity)

    def _asks_for_ours(self, row: Mapping[str, Any]) -> bool:
        return any(self._is_ours(spec.get("node", {})) for spec in _specs(row))

    def _slice(self, row: Mapping[str, Any]) -> Holding:
        ends = row.get("networkEndpoints", [])
        return replace(
            self._node(Kind.SLICE, row),
            addresses=tuple(str(end.get("ipAddress", "")) for end in ends),
            created=_seconds(row.get("createTime")),
            queued=_last(row.get("queuedResource", "")),
        )

    def _machine(self, row: Mapping[str, Any]) -> Holding:
        reused = bool(self.config.provider.get("cache_stopped_nodes"))
        kept = PROTECTED if row.get("deletionProtection") else FOR_REUSE if reused else ""
        cards = row.get("networkInterfaces", [])
        return replace(
            self._node(Kind.VM, row),
            addresses=tuple(str(card.get("networkIP", "")) for card in cards[:1]),
            created=_seconds(row.get("creationTimestamp")),
            kept=kept,
        )

    def _node(self, kind: Kind, row: Mapping[str, Any]) -> Holding:
        labels = row.get("labels", {})
        return Holding(
            kind=kind,
            name=_last(row["name"]),
            state=state(dict(row)),
            zone=self._zone.zone,
            node_type=str(labels.get("ray-user-node-type", "")),
            head=labels.get(KIND) == "head",
            by_hand=labels.get(KIND) == UNMANAGED,
        )

    def _queued(self, row: Mapping[str, Any]) -> Holding:
        specs = _specs(row)
        return Holding(
            kind=Kind.QUEUED,
            name=_last(row["name"]),
            state=str(row.get("state", {}).get("state", "")),
            zone=self._zone.zone,
            created=_seconds(row.get("createTime")),
            nodes=tuple(name for spec in specs for name in _asked_for(row, spec)),
            kept="" if all(self._is_ours(spec.get("node", {})) for spec in specs) else SHARED,
        )

    def _rule(self, row: Mapping[str, Any]) -> Holding:
        return Holding(
            kind=Kind.FIREWALL,
            name=str(row["name"]),
            state="disabled" if row.get("disabled") else "in force",
            created=_seconds(row.get("creationTimestamp")),
        )

    def _ended(self, thing: Holding, doing: str, operation: Mapping[str, Any]) -> bool:
        name = operation["name"]
        find: dict[Kind, Callable[[], Any]] = {
            Kind.VM: lambda: self._compute.zoneOperations().get(operation=name, **self._zonal),
            Kind.FIREWALL: lambda: self._compute.globalOperations().get(
                project=self._project, operation=name
            ),
        }
        seen = self._zone.get(doing, find.get(thing.kind, lambda: self._operation(name))) or {}
        if error := seen.get("error"):
            raise ToolFailed(
                f"{thing.name} was not deleted", why=failure(error), next_step="invoke gc"
            )
        return not seen or bool(seen.get("done") or seen.get("status") == "DONE")

    def _operation(self, name: str) -> Any:
        return self._zone.tpus.operations().get(name=name)


def _specs(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = row.get("tpu", {}).get("nodeSpec", [])
    return found


def _asked_for(row: Mapping[str, Any], spec: Mapping[str, Any]) -> list[str]:
    # v2 and v2alpha1 have a name of their own for it.
    several = spec.get("multisliceParams") or spec.get("multiNodeParams")
    if not several:
        return [str(spec["nodeId"])] if spec.get("nodeId") else []
    prefix = several.get("nodeIdPrefix") or _last(row["name"])
    return [f"{prefix}-{number}" for number in range(int(several.get("nodeCount", 0)))]


def _last(name: object) -> str:
    return str(name).rpartition("/")[2]


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
