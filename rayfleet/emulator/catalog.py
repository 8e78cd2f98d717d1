"""What the emulated cloud offers and where: zones, machines, images, TPUs and their runtimes."""

from __future__ import annotations

import re
from collections.abc import Mapping

# https://cloud.google.com/tpu/docs/regions-zones
TPU_ZONES: Mapping[str, tuple[str, ...]] = {
    "v2": ("us-central1-b", "us-central1-c", "us-central1-f", "europe-west4-a", "asia-east1-c"),
    "v3": ("us-central1-a", "us-central1-b", "europe-west4-a"),
    "v4": ("us-central2-b",),
    "v5litepod": (
        "us-central1-a",
        "us-east1-c",
        "us-south1-a",
        "us-west1-c",
        "us-west4-a",
        "us-west4-b",
        "us-east5-a",
        "us-east5-b",
        "us-east5-c",
        "europe-west4-b",
        "asia-southeast1-b",
    ),
    "v5p": ("us-central1-a", "us-east5-a", "us-east5-b", "us-east5-c", "europe-west4-b"),
    "v6e": (
        "us-central1-b",
        "us-central2-b",
        "us-east1-d",
        "us-east5-a",
        "us-east5-b",
        "us-east5-c",
        "us-south1-a",
        "us-west1-c",
        "europe-west4-a",
        "asia-northeast1-b",
    ),
}
# https://cloud.google.com/tpu/docs/v4 (v5e, v5p, v6e): the sizes in a name. v2 to v5p count
# TensorCores, two to a chip; v5e and v6e have one per chip.
TPU_SIZES: Mapping[str, tuple[int, ...]] = {
    "v2": (8, 32, 128, 256, 512),
    "v3": (8, 32, 64, 128, 256, 512, 1024, 2048),
    "v4": tuple(8 << power for power in range(10)),
    "v5litepod": (1, 4, 8, 16, 32, 64, 128, 256),
    "v5p": (*(8 << power for power in range(11)), 12288),
    "v6e": (1, 4, 8, 16, 32, 64, 128, 256),
}
ONE_CORE_PER_CHIP = frozenset({"v5litepod", "v6e"})
ONE_HOST_CHIPS = 8  # v5e and v6e: up to this many are on one host
CHIPS_PER_HOST = 4  # in all larger slices
# https://cloud.google.com/tpu/docs/runtimes: which generations each runtime version is for.
RUNTIMES: Mapping[str, frozenset[str]] = {
    "tpu-ubuntu2204-base": frozenset({"v2", "v3", "v4"}),
    "tpu-vm-base": frozenset({"v2", "v3", "v4"}),
    "v2-alpha-tpuv4": frozenset({"v4"}),
    "v2-tpuv5-litepod": frozenset({"v5litepod"}),
    "v2-alpha-tpuv5-lite": frozenset({"v5litepod"}),
    "v2-alpha-tpuv5": frozenset({"v5p"}),
    "v2-alpha-tpuv6e": frozenset({"v6e"}),
}
GENERATIONS: Mapping[str, str] = {"V5LITE_POD": "v5litepod"}

EXTRA_ZONES = (
    *(f"us-central1-{letter}" for letter in "abcf"),
    *(f"us-east1-{letter}" for letter in "bcd"),
    *(f"us-east5-{letter}" for letter in "abc"),
    *(f"us-west4-{letter}" for letter in "abc"),
    *(f"europe-west4-{letter}" for letter in "abc"),
)
ZONES = tuple(sorted({*EXTRA_ZONES, *(zone for zones in TPU_ZONES.values() for zone in zones)}))
REGIONS = tuple(sorted({zone.rpartition("-")[0] for zone in ZONES}))

# https://cloud.google.com/compute/docs/general-purpose-machines: sizes in vCPUs.
MACHINES: Mapping[str, tuple[int, ...]] = {
    "e2-standard": (2, 4, 8, 16, 32),
    "e2-highmem": (2, 4, 8, 16),
    "n1-standard": (1, 2, 4, 8, 16, 32, 64, 96),
    "n1-highmem": (2, 4, 8, 16, 32, 64, 96),
    "n2-standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2-highmem": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2d-standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224),
    "c3-standard": (4, 8, 22, 44, 88, 176),
}
SHARED_CORE = {"e2-micro": 2, "e2-small": 2, "e2-medium": 2, "f1-micro": 1, "g1-small": 1}
IMAGES = (
    ("ubuntu-os-cloud", "ubuntu-2204-lts", "ubuntu-2204-jammy-v20260101"),
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64", "ubuntu-2404-noble-amd64-v20260101"),
    ("debian-cloud", "debian-12", "debian-12-bookworm-v20260101"),
    ("deeplearning-platform-release", "common-cpu", "common-cpu-v20260101"),
)
IMAGE = re.compile(
    r"(?:https://www\.googleapis\.com/compute/v1/)?"
    r"projects/(?P<project>[^/]+)/global/images/(?P<family>family/)?(?P<name>[^/]+)\Z"
)


def machine_cpus(name: str) -> int:
    """The vCPUs of a machine type; 0 when there is no such type."""
    family, _, size = name.rpartition("-")
    if size.isdigit() and int(size) in MACHINES.get(family, ()):
        return int(size)
    return SHARED_CORE.get(name, 0)


def has_image(source: str) -> bool:
    """Whether ``source`` names an image or a family that there is."""
    found = IMAGE.match(source)
    return found is not None and any(
        found["project"] == project and found["name"] == (family if found["family"] else image)
        for project, family, image in IMAGES
    )


def tpu_parts(accelerator: str) -> tuple[str, int]:
    """The generation and the size in a name such as ``v5litepod-16``; 0 for no size."""
    generation, _, size = accelerator.rpartition("-")
    return generation, int(size) if size.isdigit() else 0


def tpu_offered(accelerator: str, zone: str) -> bool:
    """Whether ``zone`` has this kind of slice."""
    generation, size = tpu_parts(accelerator)
    return size in TPU_SIZES.get(generation, ()) and zone in TPU_ZONES[generation]


def tpus_of(zone: str) -> tuple[str, ...]:
    """The names of all slices that ``zone`` offers."""
    return tuple(
        f"{generation}-{size}"
        for generation, zones in TPU_ZONES.items()
        if zone in zones
        for size in TPU_SIZES[generation]
    )


def tpu_chips(accelerator: str) -> int:
    """How many chips the slice has."""
    generation, size = tpu_parts(accelerator)
    return size if generation in ONE_CORE_PER_CHIP else size // 2


def tpu_hosts(accelerator: str) -> int:
    """How many machines the slice has."""
    chips = tpu_chips(accelerator)
    alone = tpu_parts(accelerator)[0] in ONE_CORE_PER_CHIP and chips <= ONE_HOST_CHIPS
    return 1 if alone else max(1, chips // CHIPS_PER_HOST)
