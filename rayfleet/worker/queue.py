"""Workers by Google's TPU API: queued resources and their slices, one slice to a request.

A worker is known by two labels of its slice: Ray's with the cluster's identity, and Ray's mark of
nodes that its autoscaler leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.google import CLUSTER, KIND, UNMANAGED
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.google_api import failure, said, status_of
from rayfleet.google_zone import Zone
from rayfleet.waiting import Clock, SystemClock, wait_until
from rayfleet.worker.model import (
    IMAGE,
    OWNER,
    STATE,
    Added,
    Capacity,
    Slice,
    capacity_of,
    labels_of,
    metadata_of,
    terms_of,
)

CHANGE_TIMEOUT = 600.0  # seconds until Google has done what it accepted
INTERVAL = 5.0
EXISTS = 409
TAKEN = "Google took it back, or could not keep it"
NO_RECORD = frozenset({403, 404})  # not for us to read, or nothing written


@dataclass(frozen=True)
class Queue:
    """The added workers of the cluster of ``config``. All methods raise :class:`Unreachable` when
    the API does not answer after a few tries, or refuses."""

    config: LaunchConfig
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def all(self, *, ask_machines: bool = False) -> tuple[Added, ...]:
        """Every worker and every request for one; what their machines tell if asked."""
        nodes = {row["name"]: row for row in self._zone.slices() if self._is_ours(row)}
        found = []
        for request in self._zone.requests():
            spec = _spec(request)
            if self._is_ours(spec.get("node", {})):
                node = nodes.pop(self._zone.slice(spec.get("nodeId", "")), {})
                found.append(self._added(request, node, ask_machines))
        rest = [self._added({}, node, ask_machines) for node in nodes.values()]
        return tuple(sorted((*found, *rest), key=lambda one: one.name))

    def get(self, name: str) -> Added | None:
        """The worker or the request called so; None where there is none.

        Raises:
            UsageError: somebody else's is called so.
        """
        zone, doing = self._zone, f"look at {name}"
        request = zone.get(doing, lambda: self._requests.get(name=zone.request(name))) or {}
        node = zone.get(doing, lambda: self._nodes.get(name=zone.slice(name))) or {}
        if not request and not node:
            return None
        for row in (_spec(request).get("node", {}), node):
            if row and not self._is_ours(row):
                raise UsageError(
                    f"{name} is no added worker of {self.config.identity}",
                    why="its labels say so",
                    next_step="invoke workers.list",
                )
        return self._added(request, node, True)

    def ask_for(
        self, name: str, wanted: Slice, capacity: Capacity, *, owner: str, image: str, script: str
    ) -> None:
        """Ask for a slice. Asked twice it is one request.

        Raises:
            ToolFailed: Google did not take the request after all.
        """
        request, terms = terms_of(capacity)
        network = {"enableExternalIps": not self.config.provider.get("use_internal_ips")}
        node = {
            "acceleratorType": wanted.accelerator_type,
            "runtimeVersion": wanted.runtime_version,
            "labels": labels_of(self.config.identity, name, owner=owner, image=image),
            "metadata": metadata_of(script, image),
            "networkConfig": network,
            **terms,
        }
        spec = {"parent": self._zone.path, "nodeId": name, "node": node}
        body = {"tpu": {"nodeSpec": [spec]}, **request}

        query = self._requests.create(parent=self._zone.path, queuedResourceId=name, body=body)

        def create() -> dict[str, Any] | None:
            try:
                answer: dict[str, Any] = query.execute()
            except Exception as error:
                # An earlier try came through although its answer did not.
                if status_of(error) == EXISTS and "exist" in said(error):
                    return None
                raise
            return answer

        operation = self._zone.ask(f"ask for {name}", create)
        if not operation:
            return
        try:
            self._await(f"take the request for {name}", operation)
        except ToolFailed:
            if self.get(name) is None:  # else the request itself says why, in its state
                raise

    def update(self, worker: Added, *, image: str, script: str) -> None:
        """Let the machines of ``worker`` run another script, and with it another image.

        Raises:
            ToolFailed: Google accepted it, and did not do it.
        """
        labels = labels_of(self.config.identity, worker.name, owner=worker.owner, image=image)
        body = {"labels": labels, "metadata": metadata_of(script, image)}
        name = self._zone.slice(worker.name)
        query = self._nodes.patch(name=name, body=body, updateMask="labels,metadata")
        operation = self._zone.ask(f"update {worker.name}", query.execute)
        self._await(f"update {worker.name}", operation)

    def delete(self, worker: Added) -> None:
        """Delete the request and its slice; what is gone already is fine.

        Raises:
            ToolFailed: Google accepted it, and did not do it.
        """
        doing = f"delete {worker.name}"
        if worker.queued:
            # With force its slice goes, too.
            name = self._zone.request(worker.name)
            query = partial(self._requests.delete, name=name, force=True)
        else:
            query = partial(self._nodes.delete, name=self._zone.slice(worker.name))
        operation = self._zone.get(doing, query)
        if operation:
            self._await(doing, operation)

    @cached_property
    def _zone(self) -> Zone:
        return zone_of(self.config, self.clock)

    @property
    def _nodes(self) -> Any:
        return self._zone.tpus.nodes()

    @property
    def _requests(self) -> Any:
        return self._zone.tpus.queuedResources()

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        labels = row.get("labels", {})
        return bool(labels.get(CLUSTER) == self.config.identity and labels.get(KIND) == UNMANAGED)

    def _added(self, request: Mapping[str, Any], node: Mapping[str, Any], ask: bool) -> Added:
        asked = _spec(request).get("node", {})
        known = node or asked
        state = request.get("state", {})
        name = str((node or request)["name"]).rpartition("/")[2]
        machines = len(node.get("networkEndpoints", ()))
        labels = known.get("labels", {})
        return Added(
            name=name,
            state=str(state.get("state", "")) or str(node.get("state", "")),
            cause=_cause(state),
            accelerator_type=str(known.get("acceleratorType", "")),
            capacity=capacity_of(request, known),
            owner=str(labels.get(OWNER, "")),
            image=str(known.get("metadata", {}).get(IMAGE, "")),
            script=str(known.get("metadata", {}).get("startup-script", "")),
            node=str(node.get("state", "")),
            queued=bool(request),
            machines=machines,
            told=self._told(name) if ask and node.get("state") == "READY" else (),
        )

    def _told(self, name: str) -> tuple[str, ...]:
        """What the machines of a slice said last; nothing of those that said nothing."""

        def ask() -> dict[str, Any]:
            body = {"queryPath": STATE}
            query = self._nodes.getGuestAttributes(name=self._zone.slice(name), body=body)
            try:
                answer: dict[str, Any] = query.execute()
            except Exception as error:
                if status_of(error) in NO_RECORD:
                    return {}
                raise
            return answer

        records = self._zone.ask(f"ask the machines of {name}", ask).get("guestAttributes", ())
        items = [item for one in records for item in one.get("queryValue", {}).get("items", ())]
        return tuple(str(item["value"]) for item in items if str(item.get("value", "")).strip())

    def _await(self, doing: str, operation: Mapping[str, Any]) -> None:
        """Wait until Google has done it."""
        name = operation["name"]

        def over() -> bool:
            operations = self._zone.tpus.operations()
            seen = self._zone.get(doing, lambda: operations.get(name=name)) or {"done": True}
            if error := seen.get("error"):
                raise ToolFailed(
                    f"{self.config.identity}: Google could not {doing}",
                    why=failure(error),
                    next_step="invoke workers.list",
                )
            return bool(seen.get("done"))

        wait_until(
            over,
            what=f"Google to {doing}",
            timeout=CHANGE_TIMEOUT,
            interval=INTERVAL,
            next_step="invoke workers.list",
            clock=self.clock,
        )


def in_google(config: LaunchConfig) -> bool:
    """Whether a cluster's machines come from Google Cloud."""
    return {"project_id", "availability_zone"} <= config.provider.keys()


def zone_of(config: LaunchConfig, clock: Clock) -> Zone:
    """The zone of a cluster in Google Cloud."""
    provider = config.provider
    return Zone(
        owner=config.identity,
        project=str(provider["project_id"]),
        zone=str(provider["availability_zone"]),
        clock=clock,
    )


def _spec(request: Mapping[str, Any]) -> dict[str, Any]:
    specs = request.get("tpu", {}).get("nodeSpec") or [{}]
    found: dict[str, Any] = specs[0]
    return found


def _cause(state: Mapping[str, Any]) -> str:
    if state.get("state") == "FAILED":
        error = state.get("failedData", {}).get("error", {})
        return str(error.get("message") or "Google does not say why")
    if re.match("SUSPEND", str(state.get("state", ""))):
        return "its slice was deleted" if state.get("stateInitiator") == "USER" else TAKEN
    return ""
