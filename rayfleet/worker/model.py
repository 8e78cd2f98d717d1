"""What a worker that Ray did not make is, and what one asks Google for. Values only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rayfleet.cluster.google import CLUSTER, KIND, UNMANAGED
from rayfleet.errors import UsageError
from rayfleet.fleet.accelerators import ACCELERATORS

OWNER = "rayfleet-owner"
IMAGE = "rayfleet-image"  # a label with a digest's beginning, and metadata with the reference
STATE = "rayfleet/"  # where the start-up script writes guest attributes
SUFFIX = "-tpu"  # Ray 2.60 knows a TPU VM by its name, and its autoscaler dies of another
MOST = 63  # characters of a label and of a node's id
SIZE = re.compile(r"[0-9]{1,6}")
JOINED = "joined"
OVER = frozenset({"FAILED", "SUSPENDED"})
"""States of a request that nothing comes of any more."""


class Capacity(StrEnum):
    """On which terms Google gives a slice."""

    RESERVED = "reserved"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A kind of slice: the cloud's name of it (``v5litepod-8``) and the runtime of its hosts."""

    accelerator_type: str
    runtime_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A worker that was added by hand, or the request for one.

    ``state`` is the request's (``WAITING_FOR_RESOURCES``, ``ACTIVE``, …), ``cause`` why it is
    over. ``node`` is the slice's own state, empty where there is none. ``told`` is what its
    machines said last, for those that did. ``image`` is the full reference,
    ``script`` the start-up script.
    """

    name: str
    state: str
    accelerator_type: str
    capacity: str
    owner: str
    image: str
    cause: str = ""
    node: str = ""
    queued: bool = True
    machines: int = 0
    told: tuple[str, ...] = ()
    script: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        """The image's ``sha256:…``; empty for a bare tag."""
        return self.image.partition("@")[2]

    @property
    def tag(self) -> str:
        """The image's tag."""
        return self.image.partition("@")[0].rpartition(":")[2]

    @property
    def runs(self) -> bool:
        """Whether its machines are there, or are being made."""
        return self.node in {"READY", "CREATING", "STARTING", "RESTARTING", "REPAIRING"}

    @property
    def joined(self) -> int:
        """How many of its machines have joined with the image that it should have."""
        return sum(told.split()[:2] == [JOINED, self.image] for told in self.told)

    @property
    def trouble(self) -> str:
        """What keeps it, or some of its machines, from the cluster; empty when nothing does."""
        if self.cause or self.node in {"", "READY"}:
            return self.cause or self._of_machines()
        return f"the slice is {self.node}"

    def _of_machines(self) -> str:
        if not self.node or self.joined == self.machines:
            return ""
        words = Counter(told.split()[0] for told in self.told if not told.startswith(JOINED))
        details = {" ".join(told.split()[2:]) for told in self.told} - {""}
        silent = self.machines - len(self.told)
        parts = [f"{word}: {count}" for word, count in words.items()]
        parts += [f"silent: {silent}"] if silent else []
        parts += [] if parts else ["another image"]
        return ", ".join([*parts, *sorted(details)])


def slice_of(word: str) -> Slice:
    """The slice that an operator calls ``v6e-8``; the cloud's own names are fine as well.

    Raises:
        UsageError: there is no such generation, or no size.
    """
    generation, _, size = word.partition("-")
    for kind in ACCELERATORS.values():
        if (
            kind.type_prefix
            and generation in {kind.name, kind.type_prefix}
            and SIZE.fullmatch(size)
        ):
            return Slice(
                accelerator_type=kind.accelerator_type(word), runtime_version=kind.runtime_version
            )
    known = ", ".join(name for name, kind in ACCELERATORS.items() if name == kind.type_prefix)
    raise UsageError(
        f"there is no slice {word!r}",
        why=f"a generation ({known}, v5e) and a size were expected",
        next_step="invoke workers.add v6e-8 --cluster CLUSTER --capacity reserved",
    )


def full_name(identity: str, name: str) -> str:
    """What Google calls the worker that an operator calls ``name``; its own name stays.

    Raises:
        UsageError: Google would not take it.
    """
    prefix = f"ray-{identity}-"
    full = name if name.startswith(prefix) else prefix + name
    full = full if full.endswith(SUFFIX) else full + SUFFIX
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", full) or len(full) > MOST:
        raise UsageError(
            f"{name!r} is no name for a worker",
            why=f"{full} has {len(full)} characters; {MOST} of a-z, 0-9 and - are allowed",
            next_step="choose a shorter one with --name, or none",
        )
    return full


def short_name(identity: str, name: str) -> str:
    """What an operator calls a worker."""
    return name.removeprefix(f"ray-{identity}-").removesuffix(SUFFIX)


def labels_of(identity: str, name: str, *, owner: str, image: str) -> dict[str, str]:
    """The labels of a slice."""
    version = image.partition("@sha256:")[2] or image.rpartition(":")[2]
    return {
        CLUSTER: identity,
        KIND: UNMANAGED,
        "ray-node-name": name,
        OWNER: _label(owner),
        IMAGE: _label(version),
    }


def metadata_of(script: str, image: str) -> dict[str, str]:
    """The metadata of a slice whose machines run ``script``."""
    return {"startup-script": script, IMAGE: image, "enable-guest-attributes": "TRUE"}


def terms_of(capacity: Capacity) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a request says of its terms, and what the slice in it does.

    v2 has no ``guaranteed.reserved``, as v2alpha1 has: the slice says it there.
    """
    if capacity is Capacity.SPOT:
        return {"spot": {}}, {}
    if capacity is Capacity.RESERVED:
        return {}, {"schedulingConfig": {"reserved": True}}
    return {}, {}


def capacity_of(request: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """The terms of a request, of its slice, or of a slice without one."""
    terms = node.get("schedulingConfig", {})
    if "spot" in request or terms.get("spot") or terms.get("preemptible"):
        return Capacity.SPOT.value
    reserved = terms.get("reserved") or request.get("guaranteed", {}).get("reserved")
    return Capacity.RESERVED.value if reserved else Capacity.ON_DEMAND.value


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:MOST]
