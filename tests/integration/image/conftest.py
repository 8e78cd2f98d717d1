"""Sites with three real registries and the machine's Docker engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.faulty_regions import FaultyRegions, faulty_regions
from tests.support.loaded_images import KIB, loaded_image, random_layers
from tests.support.publishing import Site, forget_images, import_base_image, make_site
from tests.support.registry import LocalRegistry

REGIONS = ("us-central2", "europe-west4", "us-east5")


@pytest.fixture
def site(tmp_path: Path, start_registry: Callable[[str], LocalRegistry]) -> Iterator[Site]:
    """A committed project whose fleet has three registries; its images go with the test."""
    made = make_site(tmp_path, {region: start_registry(region) for region in REGIONS})
    import_base_image(made)
    yield made
    forget_images(made)


@pytest.fixture(scope="module")
def layered_image() -> Iterator[str]:
    """An image of four layers of a size that takes a while, one of them twice."""
    with loaded_image(random_layers(300 * KIB, 900 * KIB, 40 * KIB, KIB)) as name:
        yield name


@pytest.fixture
def regions(
    start_registry: Callable[[str], LocalRegistry], layered_image: str, tmp_path: Path
) -> Iterator[FaultyRegions]:
    """Three regions behind proxies that do as they are told."""
    with faulty_regions(start_registry, layered_image, tmp_path / "state") as made:
        yield made
