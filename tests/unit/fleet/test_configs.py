"""Bringing the config files up to date, and what each change costs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from rayfleet.console import Console
from rayfleet.errors import Drift, ToolFailed, UsageError
from rayfleet.fleet.configs import ConfigUpdate, apply_update, plan_update
from rayfleet.fleet.drift import Cost, compare
from rayfleet.fleet.model import Pin
from rayfleet.fleet.pins import write_pin
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.unit.fleet.conftest import REPOSITORY, TAG, Place
from tests.unit.fleet.test_render import PINS

CONFIG = (REPOSITORY / "infra" / "clusters" / "us-west4.yaml").read_text()


@pytest.fixture
def console() -> Console:
    return Console(out=io.StringIO(), err=io.StringIO())


@pytest.fixture
def pinned(place: Place) -> Place:
    write_pin(place.load().outputs.pins, "cluster", PINS["cluster"])
    return place


def plan(place: Place) -> ConfigUpdate:
    return plan_update(place.load(), root=place.root)


@pytest.mark.parametrize(
    ("old", "new", "cost"),
    [
        ("idle_timeout_minutes: 5", "idle_timeout_minutes: 9", Cost.NOTHING),
        ("max_workers: 1024", "max_workers: 2048", Cost.NOTHING),
        ("max_workers: 1024", "max_workers: 512", Cost.FEWER_WORKERS),
        ("min_workers: 0", "min_workers: 1", Cost.NOTHING),
        ("# On the host", "# There", Cost.NOTHING),
        ("ulimit -n 65536", "ulimit -n 1", Cost.RESTART),
        ("mkdir -p /tmp/marin-cache", "true", Cost.RESTART),
        ("CPU: 0", "CPU: 1", Cost.RESTART),
        ("--shm-size=100gb", "--shm-size=1gb", Cost.NEW_VMS),
        ("marin_cluster:", "marin_cluster:x", Cost.NEW_VMS),
        ("ssh_user: ", "ssh_user: x #", Cost.NEW_VMS),
        ("n2-standard-8", "n2-standard-16", Cost.NEW_VMS),
        ("tpu_worker:", "tpu_other:", Cost.NEW_VMS),
        ('"marin-us-west4"', '"other"', Cost.NEW_IDENTITY),
        ('"us-west4-a"', '"us-west4-b"', Cost.NEW_IDENTITY),
        ('"hai-gcp-models"', '"other"', Cost.NEW_IDENTITY),
    ],
)
def test_a_change_costs_what_ray_would_do_about_it(old: str, new: str, cost: Cost) -> None:
    assert old in CONFIG
    changes = compare(CONFIG, CONFIG.replace(old, new))
    assert max((change.cost for change in changes), default=Cost.NOTHING) is cost


def test_a_new_slice_costs_nothing() -> None:
    config = read_yaml(CONFIG)
    config["available_node_types"]["new"] = dict(config["available_node_types"]["tpu_worker"])
    assert {change.cost for change in compare(CONFIG, write_yaml(config))} == {Cost.NOTHING}


def test_the_first_update_writes_every_config_and_the_second_nothing(
    pinned: Place, console: Console
) -> None:
    first = plan(pinned)
    assert first.lines == ("us-east5.yaml: new", "us-west4.yaml: new")
    with pytest.raises(Drift, match=r"us-east5.yaml, us-west4.yaml\n  next: invoke update-configs"):
        first.refuse_drift()
    apply_update(first, console)
    second = plan(pinned)
    assert second.pending == ()
    second.refuse_drift()


def test_drift_is_shown_with_its_cost_and_its_diff(pinned: Place, console: Console) -> None:
    apply_update(plan(pinned), console)
    pinned.edit({"max: 4": "max: 9"})
    update = plan(pinned)
    update.show(console, diff=True)
    assert isinstance(console.out, io.StringIO)
    assert console.out.getvalue().startswith(
        "us-east5.yaml: changed\n"
        "  costs nothing: `ray up` applies it while jobs run\n"
        "    available_node_types.tpu_worker.max_workers: 4 -> 9\n"
        "--- us-east5.yaml (now)\n"
    )
    assert "-    max_workers: 4\n+    max_workers: 9\n" in console.out.getvalue()


def test_a_new_identity_is_refused_and_nothing_is_written(pinned: Place, console: Console) -> None:
    apply_update(plan(pinned), console)
    pinned.edit({TAG: "identity: other", "max: 4": "max: 9"})
    before = {path: path.read_text() for path in (pinned.root / "infra/clusters").iterdir()}
    with pytest.raises(UsageError, match=r"cluster_name: marin-us-west4 -> other"):
        apply_update(plan(pinned), console)
    assert {path: path.read_text() for path in before} == before
    apply_update(plan(pinned), console, allow_identity_change=True)
    assert plan(pinned).pending == ()


def test_orphans_are_removed_and_files_of_others_are_not(pinned: Place, console: Console) -> None:
    apply_update(plan(pinned), console)
    folder = pinned.root / "infra" / "clusters"
    (folder / "gone.yaml").write_text((folder / "us-east5.yaml").read_text())
    (folder / "by-hand.yaml").write_text("cluster_name: mine\n")
    update = plan(pinned)
    assert [line.split(",")[0] for line in update.lines] == [
        "gone.yaml: remove",
        "by-hand.yaml: leave alone",
    ]
    with pytest.raises(Drift, match=r"gone\.yaml"):
        update.refuse_drift()
    apply_update(update, console)
    assert sorted(path.name for path in folder.iterdir()) == [
        "by-hand.yaml",
        "us-east5.yaml",
        "us-west4.yaml",
    ]


def test_one_cluster_leaves_the_others_as_they_are(pinned: Place, console: Console) -> None:
    fleet = pinned.load()
    one = plan_update(fleet, root=pinned.root, clusters=[fleet.clusters["us-west4"]])
    apply_update(one, console)
    assert [path.name for path in (pinned.root / "infra/clusters").iterdir()] == ["us-west4.yaml"]


def test_one_bad_config_keeps_all_files_as_they_are(pinned: Place, console: Console) -> None:
    apply_update(plan(pinned), console)
    template = pinned.root / "infra" / "templates" / "gcp.yaml.j2"
    template.write_text(template.read_text() + "{% if cluster.tag %}wrong: 1{% endif %}\n")
    before = {path: path.read_text() for path in (pinned.root / "infra/clusters").iterdir()}
    with pytest.raises(ToolFailed, match=r"us-west4: wrong: unknown to Ray"):
        apply_update(plan(pinned), console)
    assert {path: path.read_text() for path in before} == before


def test_a_damaged_config_is_written_anew(pinned: Place, console: Console) -> None:
    apply_update(plan(pinned), console)
    damaged = pinned.root / "infra" / "clusters" / "us-east5.yaml"
    damaged.write_bytes(b"\xff: [")
    apply_update(plan(pinned), console)
    assert plan(pinned).pending == ()


def test_a_new_pin_costs_new_vms(pinned: Place, console: Console) -> None:
    apply_update(plan(pinned), console)
    pin: Pin = replace(PINS["cluster"], digest=f"sha256:{'b' * 64}")
    write_pin(pinned.load().outputs.pins, "cluster", pin)
    (file,) = plan(pinned).pending
    assert (file.cluster, file.cost) == ("us-east5", Cost.NEW_VMS)
