"""The cluster that gates ask: what is wanted of it, and one connection to its head."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from rayfleet.cluster.live import NODES, LiveNode, Workers, count_workers, parse_nodes
from rayfleet.rollout.gates.inside import Inside, look_inside
from rayfleet.rollout.gates.scaling import STATUS, Scaling, parse_scaling
from rayfleet.secret.credential import Token

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

    from rayfleet.cluster.config import LaunchConfig, NodeType
    from rayfleet.cluster.head import Head
    from rayfleet.fleet.model import Cluster
    from rayfleet.job.client import JobClient
    from rayfleet.job.dashboard import Dashboard

T = TypeVar("T")

DASHBOARD_PORT = 8265


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a cluster must be.

    ``before`` counts the workers by type that it had before it was stopped. ``emptied`` is
    when nothing of it was left, in seconds since 1970; None when it did not run.
    """

    rollout: str
    cluster: Cluster
    config: LaunchConfig
    before: Mapping[str, int] = field(default_factory=dict)
    emptied: float | None = None

    def node_type(self, name: str) -> NodeType | None:
        """The kind of node of that name."""
        return next((kind for kind in self.config.node_types if kind.name == name), None)


class Subject:
    """A cluster under test; a context manager that closes the connection at the end.

    ``connect`` opens a head, ``image_digest`` asks the cloud what the head's VM was made of
    (empty where a VM is not an image) and ``now`` is the time in seconds since 1970. What was
    read is kept until ``refresh``, so that one round of questions asks everything once.
    """

    def __init__(
        self,
        wanted: Wanted,
        connect: Callable[[], Head],
        *,
        token: Token = None,
        image_digest: Callable[[], str] = lambda: "",
        port: int = DASHBOARD_PORT,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.wanted = wanted
        self.now = now
        self.image_digest = image_digest
        self._connect = connect
        self._token = token
        self._port = port
        self._head: Head | None = None
        self._http: HTTPConnectionPool | None = None
        self._read: dict[str, object] = {}
        self._nodes: tuple[LiveNode, ...] = ()
        self._ray = ""

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.wanted.cluster.name

    def head(self) -> Head:
        """The connection, opened, or opened again when it was lost.

        Raises:
            Unreachable: the head cannot be reached.
        """
        if self._head is not None and not self._head.alive:
            self.close()
        if self._head is None:
            self._head = self._connect()
        return self._head

    def dashboard(self) -> Dashboard:
        """The head's HTTP API with the cluster's token; nothing is tried twice."""
        from rayfleet.job.dashboard import Dashboard

        return Dashboard(self._pool(), cluster=self.name, token=self._token, attempts=1)

    def jobs(self) -> JobClient:
        """The head's jobs; nothing is tried twice."""
        from rayfleet.job.client import JobClient

        return JobClient(self._pool(), cluster=self.name, token=self._token, patience=False)

    def ask(self, path: str) -> object:
        """The JSON that the dashboard has at ``path``.

        Raises:
            Unreachable: it does not answer.
            Unauthorized: it refuses the token.
            ToolFailed: it answers with something else.
        """

        def question() -> object:
            dashboard = self.dashboard()
            answer = dashboard.get(path)
            if not answer.ok:
                raise dashboard.refusal(answer, f"read {path.partition('?')[0]}")
            return answer.json()

        return self._once(path, question)

    def inside(self) -> Inside:
        """What only the head itself can tell."""
        return self._once("inside", lambda: look_inside(self.head()))

    def session(self) -> str:
        """The name of the running Ray's session; empty when it tells none. Renews ``ray``."""
        answer = self.ask("/api/version")
        row = answer if isinstance(answer, dict) else {}
        self._ray = str(row.get("ray_version") or "")
        return str(row.get("session_name") or "")

    def nodes(self) -> tuple[LiveNode, ...]:
        """The nodes that are up, the head among them."""
        self._nodes = parse_nodes(self.ask(NODES))
        return self._nodes

    def workers(self) -> Mapping[str, Workers]:
        """Live workers by node type."""
        return count_workers(self.nodes(), self.wanted.config.node_types)

    def scaling(self) -> Scaling | None:
        """What the autoscaler reports; None when it has not reported yet."""
        return parse_scaling(self.ask(STATUS))

    @property
    def joined(self) -> Mapping[str, int]:
        """Live workers by node type, hosts counted, when they were last asked for."""
        counted = count_workers(self._nodes, self.wanted.config.node_types)
        return {kind: one.hosts for kind, one in counted.items()}

    @property
    def ray(self) -> str:
        """The version of Ray when it was last asked for; empty before."""
        return self._ray

    def refresh(self) -> None:
        """Forget what was read, but for ``joined`` and ``ray``."""
        self._read.clear()

    def close(self) -> None:
        """Close the connection; the next question opens a new one."""
        if self._head is not None:
            self._head.close()
        self._head = self._http = None
        self._read.clear()

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _pool(self) -> HTTPConnectionPool:
        head = self.head()
        if self._http is None:
            self._http = head.http(self._port)
        return self._http

    def _once(self, key: str, question: Callable[[], T]) -> T:
        if key not in self._read:
            self._read[key] = question()
        return cast("T", self._read[key])
