"""The mistakes that Ray's own validation lets through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rayfleet.errors import UsageError
from rayfleet.fleet.pins import write_pin
from rayfleet.fleet.render import check_config
from rayfleet.fleet.review import refuse_errors, review_fleet
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.unit.fleet.conftest import REPOSITORY, SANDBOX_EDITS, Place
from tests.unit.fleet.test_render import PINS

GOOD = (REPOSITORY / "infra" / "clusters" / "us-west4.yaml").read_text()
Config = dict[str, Any]

WRONG: dict[str, tuple[Callable[[Config], object], str]] = {
    "an unknown provider key": (
        lambda c: c["provider"].update(zone="x"),
        "provider.zone: unknown to the gcp provider",
    ),
    "no project": (lambda c: c["provider"].pop("project_id"), "provider.project_id: missing"),
    "a zone elsewhere": (
        lambda c: c["provider"].update(availability_zone="us-east1-b"),
        "provider.availability_zone: us-east1-b is not in us-west4",
    ),
    "a port in an address": (
        lambda c: c["provider"].update(type="local", head_ip="10.0.0.1:22"),
        "provider.head_ip: must be an address without a port",
    ),
    "a name with capitals": (
        lambda c: c.update(cluster_name="My cluster"),
        "cluster_name: 'My cluster' must be",
    ),
    "no upscaling": (
        lambda c: c.update(upscaling_speed=0),
        "upscaling_speed: 0 adds workers one at a time",
    ),
    "no maximum": (
        lambda c: c.pop("max_workers"),
        "max_workers: no max_workers, so Ray takes 2, which is below",
    ),
    "a minimum above the maximum": (
        lambda c: worker(c).update(min_workers=3, max_workers=2),
        "available_node_types.tpu_worker.min_workers: 3 is above max_workers 2",
    ),
    "a negative minimum": (
        lambda c: worker(c).update(min_workers=-1),
        "available_node_types.tpu_worker.min_workers: -1 is negative",
    ),
    "too many minimums": (
        lambda c: [c.update(max_workers=1), worker(c).update(min_workers=2, max_workers=2)],
        "max_workers: 1 is below the sum of all min_workers, 2",
    ),
    "no head type": (
        lambda c: c.pop("head_node_type"),
        "head_node_type: 'ray_head_default' is not one of",
    ),
    "null commands": (
        lambda c: c.update(setup_commands=None),
        "setup_commands: is null; write a list",
    ),
    "a file that is not there": (
        lambda c: c.update(file_mounts={"/remote": "/no/such/file"}),
        "file_mounts./remote: there is no /no/such/file",
    ),
    "no image": (lambda c: c["docker"].pop("image"), "docker.image: missing"),
    "an open dashboard": (
        lambda c: c.update(
            head_start_ray_commands=["ray start --autoscaling-config=x --dashboard-host=0.0.0.0"]
        ),
        "head_start_ray_commands.0: the dashboard would be open",
    ),
    "Ray's own start command": (
        lambda c: c.pop("worker_start_ray_commands"),
        "worker_start_ray_commands: missing",
    ),
    "no auth mode": (
        lambda c: c["docker"].update(run_options=[]),
        "head_start_ray_commands: RAY_AUTH_MODE is not set",
    ),
    "conda that activates nothing": (
        lambda c: c["setup_commands"].insert(0, "conda activate ray"),
        "setup_commands.0: every command has a shell of its own",
    ),
    "a secret": (
        lambda c: c["docker"]["run_options"].append("-e HF_TOKEN=abcdefghijklmnop"),
        "docker.run_options.",
    ),
    "an unknown key": (
        lambda c: c.update(nonsense=1),
        "nonsense: unknown to Ray; remove it",
    ),
    "workers on the head": (
        lambda c: c["available_node_types"]["head_default"].update(max_workers=1),
        "available_node_types.head_default: the head's type may have workers too",
    ),
}


def worker(config: Config) -> Config:
    found: Config = config["available_node_types"]["tpu_worker"]
    return found


@pytest.mark.parametrize(("spoil", "expected"), WRONG.values(), ids=WRONG.keys())
def test_what_ray_lets_through_is_found(spoil: Callable[[Config], object], expected: str) -> None:
    config = read_yaml(GOOD)
    spoil(config)
    faults = check_config(write_yaml(config))
    assert faults
    assert any(fault.startswith(expected) for fault in faults)


def test_a_good_config_has_no_faults() -> None:
    assert check_config(GOOD) == []


def test_bare_and_fixed_tags_are_warnings_and_not_errors(place: Place) -> None:
    fleet = place.load()
    write_pin(fleet.outputs.pins, "cluster", type(PINS["cluster"])(tag="20260101"))
    found = review_fleet(fleet, root=place.root)
    assert [finding.line.split(",")[0] for finding in found] == [
        "warning: image cluster: LATEST is the bare tag 20260101",
        "warning: us-east5: nothing says which Ray 20260101 has",
        "warning: us-west4: runs the fixed tag 20251209 without a digest",
    ]
    refuse_errors(found)


def test_a_config_that_cannot_be_right_is_an_error(place: Place) -> None:
    template = place.root / "infra" / "templates" / "gcp.yaml.j2"
    template.write_text(template.read_text().replace("upscaling_speed: 1.0", "upscaling_speed: 0"))
    fleet = place.load()
    write_pin(fleet.outputs.pins, "cluster", PINS["cluster"])
    found = review_fleet(fleet, root=place.root)
    assert [finding.where for finding in found if finding.is_error] == ["us-east5", "us-west4"]
    with pytest.raises(UsageError, match="lint found 2 errors"):
        refuse_errors(found)


def test_a_sandbox_can_be_linted_before_it_is_up(place: Place) -> None:
    place.edit(SANDBOX_EDITS)
    fleet = place.load()
    found = review_fleet(fleet, root=place.root)
    assert "warning: image cluster: no LATEST yet; publish it: invoke cluster-docker" in [
        finding.line for finding in found
    ]
    refuse_errors(found)


def test_capping_one_of_two_equal_slices_is_a_warning(place: Place) -> None:
    place.edit(
        {
            "accelerator: v5e": "accelerator: v5p",
            "v5e-128: {min: 2}": "v5p-16: {min: 2}",
        }
    )
    found = review_fleet(place.load(), root=place.root)
    assert any("base and v5p-8 are the same slice" in finding.text for finding in found)
