"""Nodes that fall silent while the connection to them stands."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayfleet.cluster import channel
from rayfleet.cluster.channel import ConnectionLost
from rayfleet.cluster.head import Head
from rayfleet.errors import Unreachable
from tests.support.silent_ssh import StartsNothing, silent_proxy
from tests.support.sshd import LocalSshd

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

PATIENCE = 1.5
LONG = 60.0


@pytest.fixture
def stuck(sshd: LocalSshd) -> Iterator[StartsNothing]:
    server = StartsNothing(sshd)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    "use",
    [
        lambda head: head.run("true", timeout=0.5),
        lambda head: head.stream("true", timeout=0.5),
        lambda head: head.stream("cat", given=b"given", timeout=0.5),
    ],
)
def test_a_server_that_starts_nothing_costs_a_deadline_and_is_told_of(
    sshd: LocalSshd, stuck: StartsNothing, use: Callable[[Head], object]
) -> None:
    with Head.open(sshd.address(port=stuck.port)) as head:
        with pytest.raises(Unreachable) as caught:
            use(head)
        assert caught.value.text() == (
            "error: us-east5: its SSH server did not start a command within 0.5 s: "
            "it may be out of memory or processes\n  next: invoke status --cluster us-east5"
        )


def test_a_command_that_may_take_long_must_start_soon_all_the_same(
    sshd: LocalSshd, stuck: StartsNothing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "REQUEST_SECONDS", 0.4)
    with (
        Head.open(sshd.address(port=stuck.port)) as head,
        pytest.raises(Unreachable, match=r"within 0\.4 s"),
    ):
        head.run("sleep 600", timeout=3600)


def test_a_proxy_that_falls_silent_in_mid_stream_is_a_lost_connection(
    sshd: LocalSshd, tmp_path: Path
) -> None:
    mark = tmp_path / "silent"
    address = sshd.address(proxy_command=silent_proxy(sshd, mark))
    with Head.open(address, patience=PATIENCE) as head:
        chunks = iter(head.stream("echo begun; sleep 600"))
        assert next(chunks) == b"begun\n"
        mark.touch()
        begun = time.monotonic()
        with pytest.raises(ConnectionLost) as caught:
            next(chunks)
        assert time.monotonic() - begun < LONG
        assert caught.value.text() == (
            "error: us-east5: the connection was lost: it has not answered for 1.5 s\n"
            "  next: invoke status --cluster us-east5"
        )
        assert not head.alive


def test_who_writes_into_a_proxy_that_fell_silent_is_let_go(
    sshd: LocalSshd, tmp_path: Path
) -> None:
    mark = tmp_path / "silent"
    address = sshd.address(proxy_command=silent_proxy(sshd, mark))
    with Head.open(address, patience=PATIENCE) as head:
        mark.touch()
        # More than fits into the buffers on the way.
        with pytest.raises(Unreachable, match="us-east5: "):
            head.stream("wc -c", given=bytes(8_000_000), timeout=LONG)
        assert not head.alive


def test_a_machine_behind_a_jump_host_that_falls_silent_is_lost(
    sshd: LocalSshd, home: Path
) -> None:
    key = (sshd.folder / "host_key.pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"[localhost]:{sshd.port} {key}")
    (home / ".ssh" / "config").write_text(
        f"Host head-a\n HostName 127.0.0.1\n Port {sshd.port}\n ProxyJump localhost:{sshd.port}\n"
        f"Host localhost\n IdentityFile {sshd.folder / 'client_key'}\n"
    )
    with Head.open(sshd.address(host="head-a", port=22), patience=PATIENCE) as head:
        assert head.run("true", timeout=10).ok
        stopped = sshd.sessions()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unreachable, match="us-east5: "):
                head.run("true", timeout=LONG)
            assert not head.alive
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


def test_a_command_that_is_silent_for_longer_is_no_silence_of_its_machine(
    sshd: LocalSshd, tmp_path: Path
) -> None:
    address = sshd.address(proxy_command=silent_proxy(sshd, tmp_path / "never"))
    with Head.open(address, patience=PATIENCE) as head:
        assert head.run(f"sleep {PATIENCE * 3}; echo fine", timeout=LONG).stdout == "fine\n"
