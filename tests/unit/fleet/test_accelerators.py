"""The table of accelerators against the values that production ran with."""

from __future__ import annotations

import pytest

from rayfleet.fleet.accelerators import ACCELERATORS, Accelerator


@pytest.mark.parametrize(
    ("name", "base", "first", "last", "count", "runtime", "base_type"),
    [
        ("v4", "v4-8", "v4-16", "v4-4096", 9, "tpu-ubuntu2204-base", "v4-8"),
        ("v5e", "v5e-4", "v5e-8", "v5e-256", 6, "v2-alpha-tpuv5-lite", "v5litepod-4"),
        ("v5p", "v5p-8", "v5p-8", "v5p-2048", 9, "v2-alpha-tpuv5", "v5p-8"),
        ("v6e", "v6e-4", "v6e-8", "v6e-256", 6, "v2-alpha-tpuv6e", "v6e-4"),
    ],
)
def test_training_accelerators(
    name: str, base: str, first: str, last: str, count: int, runtime: str, base_type: str
) -> None:
    kind = ACCELERATORS[name]
    assert (kind.base, kind.slices[0], kind.slices[-1], len(kind.slices)) == (
        base,
        first,
        last,
        count,
    )
    assert (kind.runtime_version, kind.accelerator_type(kind.base)) == (runtime, base_type)
    assert kind.resources(kind.base) == kind.resources(kind.slices[-1]) == {"CPU": 120, "TPU": 4}


@pytest.mark.parametrize("kind", [kind for kind in ACCELERATORS.values() if kind.chips_per_host])
def test_a_host_has_the_chips_that_ray_counts_there(kind: Accelerator) -> None:
    from ray._private.accelerators.tpu import get_num_tpu_visible_chips_per_host

    for one in (kind.base, *kind.slices):
        chips = get_num_tpu_visible_chips_per_host(kind.accelerator_type(one))
        assert kind.resources(one) == {"CPU": 120, "TPU": chips}, one


@pytest.mark.parametrize(
    ("name", "base", "resources"),
    [
        ("v4-serve", "v4-16", {"CPU": 120, "TPU": 4}),
        ("v6e-serve", "v6e-8", {"CPU": 120, "TPU": 8}),
        ("cpu", "cpu", {"CPU": 1}),
    ],
)
def test_accelerators_of_one_slice(name: str, base: str, resources: dict[str, int]) -> None:
    kind = ACCELERATORS[name]
    assert (kind.base, kind.slices, kind.resources(base)) == (base, (), resources)
