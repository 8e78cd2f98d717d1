"""The nodes of a fleet, against Debian's own sshd."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayfleet.cluster.head import HeadAddress
from rayfleet.cluster.heads import Heads, NodeGone, Target
from rayfleet.errors import Unreachable, UsageError
from tests.support.loopback_fleet import LoopbackFleet

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs sshd"),
]

WHERE = 'echo "$HOME"'


@pytest.fixture
def fleet(tmp_path: Path) -> LoopbackFleet:
    return LoopbackFleet(folder=tmp_path / "fleet")


@pytest.fixture
def heads(fleet: LoopbackFleet) -> Iterator[Heads]:
    with fleet.heads() as pool:
        yield pool


def head_of(fleet: LoopbackFleet, heads: Heads, cluster: str) -> Target:
    (target,) = heads.targets([fleet.fleet.clusters[cluster]])
    return target


def test_one_connection_serves_everybody_who_asks_at_once(
    fleet: LoopbackFleet, heads: Heads
) -> None:
    machine = fleet.add_head("us-east5")
    target = head_of(fleet, heads, "us-east5")
    assert target == Target(cluster="us-east5", region="us-east5", node="head", name="us-east5")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(heads.open, [target] * 16))
    assert len(set(map(id, found))) == 1
    assert found[0].run(WHERE, timeout=30).stdout.strip() == str(machine.folder)
    assert fleet.entered(machine) == 1


def test_after_a_loss_the_address_is_looked_up_again(fleet: LoopbackFleet, heads: Heads) -> None:
    old = fleet.add_head("us-east5")
    target = head_of(fleet, heads, "us-east5")
    assert heads.open(target).run(WHERE, timeout=30).stdout.strip() == str(old.folder)
    new = fleet.add_head("us-east5", "head-2")
    # The connection is as good as ever, so it is kept.
    assert heads.open(target).run(WHERE, timeout=30).stdout.strip() == str(old.folder)
    heads.open(target).close()
    assert heads.open(target).run(WHERE, timeout=30).stdout.strip() == str(new.folder)


def test_a_head_that_was_replaced_by_a_stranger_is_refused(
    fleet: LoopbackFleet, heads: Heads
) -> None:
    fleet.add_head("us-east5")
    fleet.add_head("us-east5", "head-2", known=False)
    with pytest.raises(Unreachable, match="has changed") as caught:
        heads.open(head_of(fleet, heads, "us-east5"))
    assert caught.value.text().count("SHA256:") == 2
    assert "invoke restart --cluster us-east5" in caught.value.next_step


def test_targets_are_heads_or_workers_or_all_of_them(fleet: LoopbackFleet, heads: Heads) -> None:
    for cluster in ("us-central2", "us-east5"):
        fleet.add_head(cluster)
    for ending in ("worker-b", "worker-a"):
        fleet.add_worker("us-east5", ending)
    clusters = [fleet.fleet.clusters[name] for name in ("us-central2", "us-east5")]
    workers = ["us-east5/worker-a", "us-east5/worker-b"]
    names = {
        nodes: [target.name for target in heads.targets(clusters, nodes)]
        for nodes in ("head", "workers", "all")
    }
    assert names == {
        "head": ["us-central2", "us-east5"],
        "workers": workers,
        "all": ["us-central2", "us-east5", *workers],
    }
    assert heads.targets(clusters, "workers")[0].node == "rf-us-east5-worker-a"
    with pytest.raises(UsageError, match="head, workers, all"):
        heads.targets(clusters, "worker")


def test_a_cloud_that_does_not_answer_costs_its_own_workers_only(
    fleet: LoopbackFleet, heads: Heads
) -> None:
    fleet.add_worker("us-east5", "worker-a")
    del fleet.nodes["europe-west4"]
    fleet.save()
    targets = heads.targets(fleet.clusters, "workers")
    assert [target.name for target in targets] == ["europe-west4/workers", "us-east5/worker-a"]
    with pytest.raises(Unreachable, match="cannot list the workers"):
        heads.open(targets[0])
    assert heads.open(targets[1]).alive


def test_a_workers_key_is_taken_from_its_own_record(fleet: LoopbackFleet, heads: Heads) -> None:
    machine = fleet.add_worker("us-east5", "worker-a")
    (target,) = heads.targets(fleet.clusters, "workers")
    head = heads.open(target)
    assert head.run(WHERE, timeout=30).stdout.strip() == str(machine.folder)
    address = head.address
    assert (address.name, address.kind) == ("us-east5/worker-a", "worker")
    assert address.host_keys in (machine.folder / "host_key.pub").read_text()
    assert not fleet.known_hosts.parent.exists()


def test_a_worker_without_a_record_is_refused_and_so_is_a_stranger_in_its_place(
    fleet: LoopbackFleet, heads: Heads
) -> None:
    fleet.add_worker("us-east5", "worker-a", recorded=False)
    stranger = fleet.add_worker("us-east5", "worker-b")
    (stranger.folder / "host_key").rename(stranger.folder / "old_key")
    (stranger.folder / "host_key.pub").rename(stranger.folder / "old_key.pub")
    stranger.prepare()
    unknown, changed = heads.targets(fleet.clusters, "workers")
    with pytest.raises(Unreachable, match="its cloud keeps no record of it") as caught:
        heads.open(unknown)
    assert "~/.ssh/known_hosts as us-east5.rf-us-east5-worker-a" in caught.value.next_step
    with pytest.raises(Unreachable, match=r"us-east5/worker-b: .* has changed"):
        heads.open(changed)


def test_a_worker_that_is_gone_is_not_looked_for_at_its_old_address(
    fleet: LoopbackFleet, heads: Heads
) -> None:
    machine = fleet.add_worker("us-east5", "worker-a")
    (target,) = heads.targets(fleet.clusters, "workers")
    heads.open(target).close()
    fleet.nodes["us-east5"].clear()
    fleet.save()
    with pytest.raises(NodeGone, match="us-east5/worker-a is gone"):
        heads.open(target)
    assert fleet.entered(machine) == 1


def test_a_failed_list_is_the_answer_for_who_waited_for_it_and_the_next_one_asks_anew(
    fleet: LoopbackFleet, heads: Heads
) -> None:
    fleet.add_worker("us-east5", "worker-a")
    there = (fleet.folder / "nodes.json").read_text()
    (fleet.folder / "nodes.json").unlink()
    (unlisted,) = heads.targets([fleet.fleet.clusters["us-east5"]], "workers")
    (fleet.folder / "nodes.json").write_text(there)
    with pytest.raises(Unreachable, match="cannot list the workers"):
        heads.open(unlisted)
    with pytest.raises(NodeGone, match="now they can"):
        heads.open(unlisted)


def test_a_node_is_found_by_what_operators_call_it(fleet: LoopbackFleet, heads: Heads) -> None:
    for ending in ("worker-aa", "worker-ab"):
        fleet.add_worker("us-east5", ending)
    cluster = fleet.fleet.clusters["us-east5"]
    assert heads.find(cluster, "head").node == "head"
    for given in ("worker-aa", "*-aa", "rf-us-east5-worker-aa"):
        assert heads.find(cluster, given).name == "us-east5/worker-aa"
    with pytest.raises(UsageError, match="it means worker-aa, worker-ab"):
        heads.find(cluster, "worker-*")
    with pytest.raises(UsageError, match="there are head, worker-aa, worker-ab"):
        heads.find(cluster, "nobody")


def test_a_node_that_hangs_holds_up_nobody(fleet: LoopbackFleet, heads: Heads) -> None:
    (fleet.add_head("us-central2").folder / "asleep").touch()
    fleet.add_head("us-east5")
    begun = time.monotonic()
    results = heads.each(
        heads.targets(fleet.clusters),
        lambda head: head.run("echo fine", timeout=30).stdout,
        timeout=12.0,
    )
    assert time.monotonic() - begun < 24.0
    assert list(results) == ["us-central2", "europe-west4", "us-east5"]
    assert "did not answer within 12 s" in str(results["us-central2"])
    assert "europe-west4 has no head" in str(results["europe-west4"])
    assert results["us-east5"] == "fine\n"


def test_closing_closes_what_is_open_and_what_is_being_opened(fleet: LoopbackFleet) -> None:
    looking, going_on = threading.Event(), threading.Event()

    class Slow(Heads):
        def address(self, target: Target) -> HeadAddress:
            if target.name == "us-east5":
                looking.set()
                assert going_on.wait(30)
            return super().address(target)

    fleet.add_head("us-central2")
    late = fleet.add_head("us-east5")
    heads = Slow(fleet.project, fleet.fleet)
    opened = heads.open(head_of(fleet, heads, "us-central2"))
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(heads.open, head_of(fleet, heads, "us-east5"))
        assert looking.wait(30)
        heads.close()
        going_on.set()
        assert not opening.result().alive
    assert fleet.entered(late) == 1
    assert not opened.alive
