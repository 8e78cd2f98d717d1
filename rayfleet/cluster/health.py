"""What a cluster is right now, asked of its head, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig, NodeType
from rayfleet.cluster.container import image_of
from rayfleet.cluster.live import NODES, LiveNode, count_workers, parse_nodes
from rayfleet.cluster.nodes import Nodes
from rayfleet.cluster.started import read_start
from rayfleet.errors import RayfleetError, Unreachable
from rayfleet.secret.credential import Token, asked

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

    from rayfleet.cluster.head import Head, HeadAddress

DASHBOARD_PORT = 8265
ASK_TIMEOUT = 20.0  # seconds per question to a head
REFUSED = "the dashboard refuses us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One cluster as it is.

    ``head`` is the node's id: empty when there is none or, with a ``problem``, when even that
    could not be asked; ``orphans`` are the workers that run without one. ``members`` are the live
    workers, each host of a slice for itself; ``workers`` counts by node type those all of whose
    hosts have joined, ``partial`` the slices that lack some. ``config_hash`` is of the config that
    the cluster was last started with.
    """

    cluster: str
    head: str = ""
    problem: str = ""
    orphans: tuple[str, ...] = ()
    ray_version: str = ""
    image_digest: str = ""
    wanted_digest: str = ""
    members: tuple[LiveNode, ...] = ()
    workers: Mapping[str, int] = field(default_factory=dict)
    partial: Mapping[str, int] = field(default_factory=dict)
    wanted_workers: Mapping[str, int] = field(default_factory=dict)
    config_hash: str = ""
    wanted_hash: str = ""

    @property
    def answers(self) -> bool:
        """Whether the head's dashboard answered."""
        return bool(self.ray_version)

    @property
    def refused(self) -> bool:
        """Whether the head's dashboard is up and did not take our token."""
        return self.problem.startswith(REFUSED)

    @property
    def joined(self) -> int:
        """How many workers are whole."""
        return sum(self.workers.values())

    @property
    def on_target(self) -> bool:
        """Whether it runs the configured image, was started with today's config, and has its
        minimum of workers: a restart would change nothing."""
        return not self.failing() and self.config_hash == self.wanted_hash

    def failing(self) -> tuple[str, ...]:
        """What keeps it from being healthy, one phrase each; empty means healthy."""
        if not self.head:
            return (self.problem or "it has no head",)
        if not self.answers:
            return (f"the head does not answer: {self.problem}",)
        found = []
        if self.wanted_digest and self.image_digest != self.wanted_digest:
            running = self.image_digest or "an unknown image"
            found.append(f"the head runs {running}, not {self.wanted_digest}")
        for kind, wanted in self.wanted_workers.items():
            if self.workers.get(kind, 0) < wanted:
                some = self.partial.get(kind, 0)
                more = f", {some} with only some of their hosts" if some else ""
                found.append(f"{self.workers.get(kind, 0)} of {wanted} {kind} joined{more}")
        return tuple(found)

    def with_workers(self, nodes: Iterable[LiveNode], kinds: Iterable[NodeType]) -> Observed:
        """The same with those of ``nodes`` that are workers; ``kinds`` are the config's."""
        members = tuple(node for node in nodes if not node.head)
        counted = count_workers(members, kinds)
        return replace(
            self,
            members=members,
            workers={kind: each.whole for kind, each in counted.items()},
            partial={kind: each.partial for kind, each in counted.items() if each.partial},
        )

    def word(self) -> str:
        """The state in one word, for a table."""
        if not self.head:
            return "unknown" if self.problem else "no head" if self.orphans else "stopped"
        return "healthy" if not self.failing() else "unhealthy"


def observe(
    config: LaunchConfig,
    name: str,
    address_of: Callable[[str], HeadAddress],
    *,
    token: Token = None,
    also: Callable[[Head], None] | None = None,
) -> Observed:
    """Ask the cloud and the head what cluster ``name`` is; never raises for what is down.

    ``token`` is Ray's authentication token; None where the cluster wants none. ``also`` is given
    the open connection to the head, before anything is asked there.
    """
    from rayfleet.cluster.head import Head

    seen = Observed(
        cluster=name,
        wanted_digest=config.digest,
        wanted_hash=config.hash,
        wanted_workers=config.min_workers,
    )
    nodes = Nodes(config)
    try:
        head = nodes.head()
        if not head:
            return replace(seen, orphans=nodes.running_workers())
        seen = replace(seen, head=head, image_digest=nodes.image_digest(head))
        with Head.open(address_of(nodes.address(head))) as connection:
            if also is not None:
                also(connection)
            http = connection.http(DASHBOARD_PORT)
            version, nodes_up = ray_version(http, token), live_nodes(http, token)
            return replace(
                seen,
                image_digest=seen.image_digest or container_digest(connection),
                ray_version=version,
                config_hash=read_start(connection).config,
            ).with_workers(nodes_up, config.node_types)
    except RayfleetError as error:
        return replace(seen, problem=f"{error.what}: {error.why}" if error.why else error.what)


def ray_version(http: HTTPConnectionPool, token: Token = None) -> str:
    """The version of Ray that the head's dashboard runs."""
    answer = ask(http, "/api/version", token)
    return str(answer["ray_version"]) if isinstance(answer, dict) else ""


def live_nodes(http: HTTPConnectionPool, token: Token = None) -> tuple[LiveNode, ...]:
    """The nodes that are up, as the cluster's own control store (GCS) knows them.

    Raises:
        ToolFailed: the head's answer is no list of nodes.
    """
    return parse_nodes(ask(http, NODES, token))


def container_digest(head: Head) -> str:
    """Where Ray runs in a container on the node: the digest of that container's image."""
    if not head.address.container:
        return ""
    result = head.run(image_of(head.address.container), timeout=ASK_TIMEOUT)
    return result.stdout.strip().partition("@")[2] if result.code == 0 else ""


def ask(http: HTTPConnectionPool, path: str, token: Token = None) -> object:
    """What the dashboard of a head answers to ``path``, out of its JSON.

    Raises:
        Unreachable: nothing, a refusal, or an error.
    """
    from urllib3.exceptions import HTTPError

    def once(headers: Mapping[str, str]) -> BaseHTTPResponse:
        return http.request("GET", path, headers=headers, timeout=ASK_TIMEOUT)

    try:
        response = asked(token, once, lambda answer: answer.status)
    except (HTTPError, OSError) as error:
        raise Unreachable("the dashboard does not answer", why=str(error)[:200]) from error
    if response.status in {401, 403}:
        given = "it wants a token" if response.status == 401 else "the token is not the cluster's"
        raise Unreachable(
            REFUSED,
            why=f"{given} (HTTP {response.status})",
            next_step="invoke auth.check",
        )
    if response.status != 200:
        raise Unreachable(f"the dashboard answers {response.status} to {path}")
    return response.json()
