"""Ray's own launcher, its ssh and its rsync, take the host key of the machine's record only."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rayfleet.cluster import launch_keys
from rayfleet.cluster.launch_ssh import destination
from rayfleet.errors import Unreachable
from rayfleet.waiting import wait_until
from tests.support.launching import CLUSTER, Launching
from tests.support.loopback_fleet import ROOT, LoopbackFleet
from tests.support.sshd import make_key

pytestmark = pytest.mark.integration


@pytest.fixture
def launching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launching:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Launching(fleet=LoopbackFleet(folder=tmp_path / "fleet"))


def test_a_head_with_the_key_of_its_record_is_set_up(launching: Launching) -> None:
    launching.record.write_text(launching.key)
    assert launching.launch() == launching.machine.folder.name
    assert launching.was_set_up


def test_a_head_with_another_key_is_not_even_logged_in_to(
    launching: Launching, tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    launching.record.write_text((tmp_path / "other.pub").read_text())
    with pytest.raises(Unreachable) as caught:
        launching.launch()
    text = caught.value.text()
    assert f"{CLUSTER}: the host key of {launching.machine.folder.name} has changed" in text
    assert text.count("SHA256:") == 2
    assert "invoke restart --cluster us-east5" in text
    assert not launching.was_set_up
    assert "Accepted" not in (launching.machine.folder / "log").read_text()


def test_a_head_whose_record_comes_late_is_waited_for(launching: Launching) -> None:
    def boot() -> None:
        asked = launching.machine.folder / "asked"
        wait_until(asked.exists, what="the first question", timeout=120, interval=0.05)
        launching.record.write_text(launching.key)

    booting = threading.Thread(target=boot)
    booting.start()
    launching.launch()
    booting.join()
    assert launching.was_set_up


def test_a_head_without_a_record_is_refused_and_the_way_out_is_told(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_keys, "KEY_SECONDS", 1.0)
    with pytest.raises(Unreachable) as caught:
        launching.launch()
    text = caught.value.text()
    assert "is not known" in text
    assert "its cloud has no record of it" in text
    assert "README" in text
    assert not launching.was_set_up


def test_without_a_record_the_operators_own_known_hosts_count(
    launching: Launching, home: Path
) -> None:
    name = launching.machine.folder.name
    (home / ".ssh" / "known_hosts").write_text(f"{name} {launching.key}")
    launching.launch()
    assert launching.was_set_up


@pytest.mark.parametrize(
    ("words", "host"),
    [
        # As Ray gives them, and its rsync.
        (["-tt", "-i", "/k", "-o", "ConnectTimeout=10s", "ray@10.0.0.3", "bash", "-c", "-i"], "10"),
        (["-i", "/k", "-o", "A=b", "-l", "ray", "10.0.0.3", "rsync", "--server", "-e"], "10"),
        (["-L", "1:localhost:2", "-p22", "ray@fe80::1"], "fe"),
        (["-V"], ""),
    ],
)
def test_the_host_is_found_among_the_words_of_ssh(words: list[str], host: str) -> None:
    assert destination(words)[:2] == host
