"""The accelerators that a cluster can have, and the node types that follow from them.

Values are those that the production fleet ran with in December 2025, but for the chips of v5e-8
and v6e-8, single hosts with 8, as Ray counts them and as the fleet had it later. Every host of a
slice shows Ray 120 CPUs, half of what it has: Ray does not enforce logical CPUs, and libraries
start threads of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rayfleet.fleet.model import Cluster, Workers

BASE = "base"
TPU_HOST_CPUS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One kind of accelerator.

    ``base`` is the slice of plain workers; ``slices`` are the others that a cluster of this
    kind offers (``v5p-8`` is both on purpose: production sizes the two apart).
    ``type_prefix`` is what the cloud calls the generation: ``v5e-8`` is ``v5litepod-8``.
    ``chips_per_host`` are those of a slice of several hosts; a slice of no more than
    ``chips_on_one_host`` is a single host, which has all of its chips.
    """

    name: str
    base: str
    slices: tuple[str, ...] = ()
    chips_per_host: int = 0
    chips_on_one_host: int = 0
    runtime_version: str = ""
    type_prefix: str = ""

    @property
    def worker_keys(self) -> tuple[str, ...]:
        """What ``workers:`` of a cluster may name."""
        return (BASE, *self.slices)

    def resources(self, slice_name: str) -> dict[str, int]:
        """Ray's logical resources of one host of a slice."""
        if not self.chips_per_host:
            return {"CPU": 1}
        size = int(slice_name.rpartition("-")[2])
        chips = size if size <= self.chips_on_one_host else self.chips_per_host
        return {"CPU": TPU_HOST_CPUS, "TPU": chips}

    def accelerator_type(self, slice_name: str) -> str:
        """The cloud's own name of a slice; empty where there is no accelerator."""
        return f"{self.type_prefix}-{slice_name.rpartition('-')[2]}" if self.type_prefix else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """One worker entry of Ray's ``available_node_types``; ``slice`` is its key in the fleet."""

    name: str
    slice: str
    resources: Mapping[str, int]
    min_workers: int
    max_workers: int
    accelerator_type: str = ""
    runtime_version: str = ""


def _slices(generation: str, first: int, last: int) -> tuple[str, ...]:
    sizes = (1 << power for power in range(32))
    return tuple(f"{generation}-{size}" for size in sizes if first <= size <= last)


_TPU_V4 = "tpu-ubuntu2204-base"
_TPU_V5E = "v2-alpha-tpuv5-lite"
_TPU_V5P = "v2-alpha-tpuv5"
_TPU_V6E = "v2-alpha-tpuv6e"

ACCELERATORS: Mapping[str, Accelerator] = {
    kind.name: kind
    for kind in (
        Accelerator(
            name="v4",
            base="v4-8",
            slices=_slices("v4", 16, 4096),
            chips_per_host=4,
            runtime_version=_TPU_V4,
            type_prefix="v4",
        ),
        Accelerator(
            name="v4-serve",
            base="v4-16",
            chips_per_host=4,
            runtime_version=_TPU_V4,
            type_prefix="v4",
        ),
        Accelerator(
            name="v5e",
            base="v5e-4",
            slices=_slices("v5e", 8, 256),
            chips_per_host=4,
            chips_on_one_host=8,
            runtime_version=_TPU_V5E,
            type_prefix="v5litepod",
        ),
        Accelerator(
            name="v5p",
            base="v5p-8",
            slices=_slices("v5p", 8, 2048),
            chips_per_host=4,
            runtime_version=_TPU_V5P,
            type_prefix="v5p",
        ),
        Accelerator(
            name="v6e",
            base="v6e-4",
            slices=_slices("v6e", 8, 256),
            chips_per_host=4,
            chips_on_one_host=8,
            runtime_version=_TPU_V6E,
            type_prefix="v6e",
        ),
        Accelerator(
            name="v6e-serve",
            base="v6e-8",
            chips_per_host=4,
            chips_on_one_host=8,
            runtime_version=_TPU_V6E,
            type_prefix="v6e",
        ),
        Accelerator(name="cpu", base="cpu"),
    )
}


def node_types(cluster: Cluster) -> tuple[NodeType, ...]:
    """Every worker node type of ``cluster``: the base slice first, then the others by size.

    A slice that ``workers:`` does not name has a minimum of 0 and the cluster's maximum.
    """
    return tuple(_node_types(cluster, ACCELERATORS[cluster.accelerator]))


def _node_types(cluster: Cluster, kind: Accelerator) -> Iterator[NodeType]:
    unlisted = Workers(min_count=0, max_count=cluster.max_workers)
    for key in kind.worker_keys:
        slice_name = kind.base if key == BASE else key
        count = cluster.workers.get(key, unlisted)
        yield NodeType(
            name=_node_type_name(kind, key),
            slice=slice_name,
            resources=kind.resources(slice_name),
            min_workers=count.min_count,
            max_workers=count.max_count,
            accelerator_type=kind.accelerator_type(slice_name),
            runtime_version=kind.runtime_version,
        )


def _node_type_name(kind: Accelerator, key: str) -> str:
    if not kind.chips_per_host:
        return "worker"
    return "tpu_worker" if key == BASE else f"tpu_slice_{key.replace('-', '_')}"
