"""Workers by Google's TPU API: queued resources and their slices, one slice to a request.

A worker is known by two labels of its slice: Ray's with the cluster's identity, and Ray's mark of
nodes that its autoscaler leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.google import CLUSTER, KIND, NOT_FOUND, UNMANAGED
from rayfleet.errors import ToolFailed, Unreachable, UsageError
from rayfleet.google_api import patiently, said, service, status_of
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

T = TypeVar("T")

CHANGE_TIMEOUT = 600.0  # seconds until Google has done what it accepted
INTERVAL = 5.0
EXISTS = 409
FORBIDDEN, NOT_ENABLED = 403, "API has not been used in project"
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
        nodes = {
            row["name"]: row
            for row in self._pages("list the slices", self._nodes, "nodes")
            if self._is_ours(row)
        }
        requests = self._pages("list the queued resources", self._requests, "queuedResources")
        found = []
        for request in requests:
            spec = _spec(request)
            if self._is_ours(spec.get("node", {})):
                node = nodes.pop(f"{self._place}/nodes/{spec.get('nodeId')}", {})
                found.append(self._added(request, node, ask_machines))
        rest = [self._added({}, node, ask_machines) for node in nodes.values()]
        return tuple(sorted((*found, *rest), key=lambda one: one.name))

    def get(self, name: str) -> Added | None:
        """The worker or the request called so; None where there is none.

        Raises:
            UsageError: somebody else's is called so.
        """
        request = self._get(lambda: self._requests.get(name=self._request(name))) or {}
        node = self._get(lambda: self._nodes.get(name=self._node(name))) or {}
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
        spec = {"parent": self._place, "nodeId": name, "node": node}
        body = {"tpu": {"nodeSpec": [spec]}, **request}

        query = self._requests.create(parent=self._place, queuedResourceId=name, body=body)

        def create() -> dict[str, Any] | None:
            try:
                answer: dict[str, Any] = query.execute()
            except Exception as error:
                # An earlier try came through although its answer did not.
                if status_of(error) == EXISTS and "exist" in said(error):
                    return None
                raise
            return answer

        operation = self._ask(f"ask for {name}", create)
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
        name = self._node(worker.name)
        query = self._nodes.patch(name=name, body=body, updateMask="labels,metadata")
        operation = self._ask(f"update {worker.name}", query.execute)
        self._await(f"update {worker.name}", operation)

    def delete(self, worker: Added) -> None:
        """Delete the request and its slice; what is gone already is fine.

        Raises:
            ToolFailed: Google accepted it, and did not do it.
        """
        doing = f"delete {worker.name}"
        if worker.queued:
            # With force its slice goes, too.
            name = self._request(worker.name)
            operation = self._get(lambda: self._requests.delete(name=name, force=True))
        else:
            operation = self._get(lambda: self._nodes.delete(name=self._node(worker.name)))
        if operation:
            self._await(doing, operation)

    @property
    def _place(self) -> str:
        provider = self.config.provider
        return f"projects/{provider['project_id']}/locations/{provider['availability_zone']}"

    @cached_property
    def _locations(self) -> Any:
        found = self._ask("reach Cloud TPU", lambda: service("tpu", "v2"))
        return found.projects().locations()

    @property
    def _nodes(self) -> Any:
        return self._locations.nodes()

    @property
    def _requests(self) -> Any:
        return self._locations.queuedResources()

    def _request(self, name: str) -> str:
        return f"{self._place}/queuedResources/{name}"

    def _node(self, name: str) -> str:
        return f"{self._place}/nodes/{name}"

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
            query = self._nodes.getGuestAttributes(name=self._node(name), body=body)
            try:
                answer: dict[str, Any] = query.execute()
            except Exception as error:
                if status_of(error) in NO_RECORD:
                    return {}
                raise
            return answer

        records = self._ask(f"ask the machines of {name}", ask).get("guestAttributes", ())
        items = [item for one in records for item in one.get("queryValue", {}).get("items", ())]
        return tuple(str(item["value"]) for item in items if str(item.get("value", "")).strip())

    def _pages(self, doing: str, method: Any, key: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query = method.list(parent=self._place)
        while query is not None:
            answer = self._ask(doing, partial(_page, query))
            if answer.get("unreachable"):
                raise Unreachable(
                    f"{self.config.identity}: cannot {doing}",
                    why=f"Google does not reach {', '.join(answer['unreachable'])}",
                    next_step="run the same again later",
                )
            found += answer.get(key, [])
            query = method.list_next(query, answer)
        return found

    def _get(self, query: Callable[[], Any]) -> dict[str, Any] | None:
        def answer() -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = query().execute()
            except Exception as error:
                if status_of(error) == NOT_FOUND:
                    return None
                raise
            return found

        return self._ask("reach its workers", answer)

    def _await(self, doing: str, operation: Mapping[str, Any]) -> None:
        """Wait until Google has done it."""
        name = operation["name"]

        def over() -> bool:
            seen = self._get(lambda: self._locations.operations().get(name=name)) or {"done": True}
            if error := seen.get("error"):
                raise ToolFailed(
                    f"{self.config.identity}: Google could not {doing}",
                    why=f"{error.get('code')}: {error.get('message')}",
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

    def _ask(self, doing: str, question: Callable[[], T]) -> T:
        try:
            return patiently(question, self.clock)
        except Exception as error:
            raise Unreachable(
                f"{self.config.identity}: cannot {doing}", why=said(error), next_step=_next(error)
            ) from error


def in_google(config: LaunchConfig) -> bool:
    """Whether a cluster's machines come from Google Cloud."""
    return {"project_id", "availability_zone"} <= config.provider.keys()


def _page(query: Any) -> dict[str, Any]:
    """One page; an empty one in a project that does not use TPUs at all."""
    try:
        answer: dict[str, Any] = query.execute()
    except Exception as error:
        if status_of(error) == FORBIDDEN and NOT_ENABLED in said(error):
            return {}
        raise
    return answer


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


def _next(error: Exception) -> str:
    return "run the same again later" if status_of(error) >= 500 else "invoke doctor"
