"""What an image is built on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Fleet, Outputs, Pin
from rayfleet.fleet.pins import write_pin
from rayfleet.fleet.references import base_reference
from tests.support.artifact_registry import PROJECT, family, fleet_of

DIGEST = f"sha256:{'1' * 64}"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Of a family on Debian, and one on that family."""
    cluster, vllm = family(), replace(family("vllm"), base_image="cluster")
    made = fleet_of(["us-central2", "us-east5"], families=[cluster, vllm])
    hosts = {region: f"{region}-docker.pkg.dev" for region in made.registries.regions}
    return replace(
        made,
        registries=replace(made.registries, hosts=hosts),
        outputs=Outputs(pins=tmp_path / "pins.yaml", configs=tmp_path),
    )


def test_a_base_of_the_fleet_is_what_its_pin_names(fleet: Fleet) -> None:
    assert base_reference(fleet, "cluster") == "debian:bookworm-slim"
    write_pin(fleet.outputs.pins, "cluster", Pin(tag="3f2a1bc", digest=DIGEST))
    image = fleet.images["cluster"]
    path = f"{PROJECT}/{image.repository}/{image.name}"
    assert base_reference(fleet, "vllm") == f"us-central2-docker.pkg.dev/{path}:3f2a1bc@{DIGEST}"


@pytest.mark.parametrize("pin", [None, Pin(tag="4554f82")])
def test_a_base_of_the_fleet_that_no_digest_names_is_not_built_on(
    fleet: Fleet, pin: Pin | None
) -> None:
    if pin is not None:
        write_pin(fleet.outputs.pins, "cluster", pin)
    with pytest.raises(UsageError, match="has no pin with a digest") as refused:
        base_reference(fleet, "vllm")
    assert refused.value.next_step == "invoke cluster-docker"
