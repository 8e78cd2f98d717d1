"""Clusters as they may be seen, for the functions that recognise their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rayfleet.cluster.config import LaunchConfig, NodeType
from rayfleet.cluster.health import Observed
from rayfleet.cluster.live import GROUP, LiveNode
from rayfleet.fleet.model import Auth, Cluster, Provider, Ssh
from rayfleet.health.holding import Holding, Holdings, Kind
from rayfleet.health.room import Room
from rayfleet.health.sight import Seen, Sight
from rayfleet.rollout.gates.inside import Inside
from rayfleet.rollout.gates.scaling import Scaling

NOW = 2_000_000_000.0
IDENTITY = "marin-us-east5"
DIGEST = f"sha256:{'a' * 64}"
RAY = "2.60.0"
PAIR, ONE = "tpu_slice_v6e_16", "tpu_worker"

CLUSTER = Cluster(
    name="us-east5",
    identity=IDENTITY,
    provider=Provider.GCP,
    region="us-east5",
    zone="us-east5-b",
    accelerator="v6e",
    bucket="marin-us-east5",
    image="cluster",
    template="gcp.yaml.j2",
    workers={},
    max_workers=8,
    ssh=Ssh(),
    auth=Auth(),
)
CONFIG = LaunchConfig(
    path=Path("us-east5.yaml"),
    identity=IDENTITY,
    provider={"type": "gcp", "project_id": "p", "availability_zone": "us-east5-b"},
    image=f"registry/marin/marin_cluster:1@{DIGEST}",
    min_workers={PAIR: 1, ONE: 2},
    hash="now",
    node_types=(
        NodeType(name="head_default", most=1),
        NodeType(name=PAIR, most=8, hosts=2),
        NodeType(name=ONE, most=8),
    ),
)


def head(**changes: Any) -> Holding:
    """A head that runs."""
    made = Holding(
        kind=Kind.VM,
        name=f"ray-{IDENTITY}-head-00000001-compute",
        state="RUNNING",
        zone="us-east5-b",
        node_type="head_default",
        head=True,
        addresses=("10.0.0.1",),
        created=NOW - 86_400,
    )
    return replace(made, **changes)


def slice_(number: int, *addresses: str, **changes: Any) -> Holding:
    """A slice that is a day old and ready."""
    made = Holding(
        kind=Kind.SLICE,
        name=f"ray-{IDENTITY}-worker-{number:08x}-tpu",
        state="READY",
        zone="us-east5-b",
        node_type=PAIR if len(addresses) == 2 else ONE,
        addresses=addresses,
        created=NOW - 86_400,
    )
    return replace(made, **changes)


SLICES = (slice_(1, "10.0.1.1", "10.0.1.2"), slice_(2, "10.0.2.1"), slice_(3, "10.0.3.1"))


def joined(*things: Holding) -> tuple[LiveNode, ...]:
    """The machines of ``things`` as the head knows them."""
    return tuple(
        LiveNode(id=address, address=address, labels={GROUP: thing.node_type})
        for thing in things
        for address in thing.addresses
    )


def observed(members: tuple[LiveNode, ...], **changes: Any) -> Observed:
    """A healthy cluster with these workers."""
    seen = Observed(
        cluster="us-east5",
        head="head-1",
        ray_version=RAY,
        image_digest=DIGEST,
        wanted_digest=DIGEST,
        wanted_workers=CONFIG.min_workers,
        config_hash="now",
        wanted_hash="now",
    ).with_workers(members, CONFIG.node_types)
    return replace(seen, **changes)


def node(
    *, image: str = CONFIG.image, ray: str = RAY, used: float = 0.3, autoscaler: bool = True
) -> Seen:
    """What a node says of itself."""
    size = 200 * 1024**3
    room = Room(mount="/", size=size, free=int(size * (1 - used)))
    return Seen(inside=Inside(image=image, ray=ray, autoscaler=autoscaler), rooms=(room,))


def sight(
    *things: Holding,
    members: tuple[LiveNode, ...] | None = None,
    seen: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Sight:
    """A healthy cluster, but for what is said: ``things`` are all that it holds, ``members``
    have joined, ``seen`` changes what was observed."""
    held = things or (head(), *SLICES)
    who = joined(*SLICES) if members is None else members
    made = Sight(
        cluster=CLUSTER,
        config=CONFIG,
        observed=observed(who, **(seen or {})),
        now=NOW,
        holdings=Holdings(things=held),
        nodes={"us-east5": node(), "us-east5/worker-1": node(autoscaler=False)},
        scaling=Scaling(),
        bucket="us-east5",
        ours=RAY,
    )
    return replace(made, **changes)
