"""The door to a head, against Debian's own sshd."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rayfleet.cluster import watched
from rayfleet.cluster.channel import ConnectionLost
from rayfleet.cluster.head import OPEN_SECONDS, Head, HeadAddress
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.errors import PrerequisiteMissing, ToolFailed, Unreachable, UsageError
from rayfleet.waiting import wait_until
from tests.support.processes import runs
from tests.support.sshd import LocalSshd, make_key

pytestmark = pytest.mark.integration


@pytest.fixture
def black_hole() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refusal(address: HeadAddress, timeout: float = 10.0) -> str:
    with pytest.raises(Unreachable) as caught:
        Head.open(address, timeout=timeout)
    return caught.value.text()


def offered_key(server: LocalSshd) -> str:
    command = ["ssh-keygen", "-l", "-f", str(server.folder / "host_key.pub")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[1]


# Commands


def test_run_returns_code_and_both_streams_apart(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        result = head.run("echo out; echo err >&2; cat; exit 3", timeout=10)
    assert (result.code, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_run_reads_both_streams_at_once_however_much_they_hold(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        result = head.run("head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero", timeout=30)
    assert (len(result.stdout), len(result.stderr)) == (5_000_000, 5_000_000)


def test_run_gives_up_at_its_deadline(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        with pytest.raises(Unreachable, match="did not end within"):
            head.run("sleep 600", timeout=0.2)
        assert head.run("echo still here", timeout=10).stdout == "still here\n"


def test_run_refuses_output_without_bound(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head, pytest.raises(ToolFailed, match="16 MiB"):
        head.run("cat /dev/zero", timeout=60)


@pytest.mark.parametrize("given", [b"\0\n\xff", bytes(range(256)) * 12_000])
def test_a_stream_reads_exactly_what_it_is_given(sshd: LocalSshd, given: bytes) -> None:
    with Head.open(sshd.address()) as head:
        command = f"head -c {len(given)} | sha256sum; exit 3"
        stream = head.stream(command, given=given)
        assert b"".join(stream).split()[0].decode() == hashlib.sha256(given).hexdigest()
        assert stream.code == 3


def test_a_command_that_was_given_something_ends_with_its_connection(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        command = "read -r given; echo $given; sleep 600 & echo $! $$; wait"
        chunks = iter(head.stream(command, given=b"given\n"))
        output = b""
        while output.count(b"\n") < 2:
            output += next(chunks)
        pids = output.split()[1:]
        sshd.kill_sessions()
        wait_until(lambda: not any(runs(int(pid)) for pid in pids), what="the end", timeout=20)


def test_closing_a_stream_ends_the_remote_command_even_a_silent_one(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        stream = head.stream("sleep 600 & echo $! $$; wait")
        pids = next(iter(stream)).split()
        assert all(runs(int(pid)) for pid in pids)
        stream.close()
        wait_until(lambda: not any(runs(int(pid)) for pid in pids), what="the end", timeout=20)


def test_the_input_of_a_stream_ends_with_it_and_not_before(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        stream = head.stream("head -c 3; timeout 0.5 cat; echo $?", given=b"abc")
        assert b"".join(stream) == b"abc124\n"


def test_a_command_that_takes_no_notice_is_killed(
    sshd: LocalSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "GRACE_SECONDS", 1)
    with Head.open(sshd.address()) as head:
        stream = head.stream("trap '' TERM; sleep 600 & echo $! $$; wait; sleep 600")
        pids = next(iter(stream)).split()
        stream.close()
        wait_until(lambda: not any(runs(int(pid)) for pid in pids), what="the end", timeout=20)


def test_a_stream_ends_with_the_exit_code_and_all_bytes(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        stream = head.stream("head -c 30000000 /dev/zero; echo why >&2; exit 7")
        assert sum(map(len, stream)) == 30_000_000
        assert (stream.code, stream.stderr) == (7, "why")


def test_a_connection_that_dies_under_a_stream_is_an_error_not_an_end(sshd: LocalSshd) -> None:
    with Head.open(sshd.address()) as head:
        chunks = iter(head.stream("echo begun; sleep 600"))
        assert next(chunks) == b"begun\n"
        assert sshd.kill_sessions() == 1
        with pytest.raises(ConnectionLost):
            next(chunks)
        with pytest.raises(Unreachable, match="was lost"):
            head.run("true", timeout=10)


def test_a_connection_that_dies_while_room_is_announced_is_lost_as_well(sshd: LocalSshd) -> None:
    # The head stands still, so that nothing but our own write can tell that the line is dead.
    with Head.open(sshd.address()) as head:
        stream = head.stream("yes")
        chunks = iter(stream)
        next(chunks)
        wait_until(
            lambda: len(stream.channel.in_buffer) > 1 << 20, what="a full window", timeout=30
        )
        stopped = sshd.sessions()
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            stream.channel.get_transport().sock.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionLost):
                for _ in chunks:
                    pass
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


# HTTP


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.path.encode() * 100_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class KeepAlive(Answer):
    protocol_version = "HTTP/1.1"


class CountingServer(ThreadingHTTPServer):
    connections = 0

    def verify_request(self, request: object, client_address: object) -> bool:
        self.connections += 1
        return True


@pytest.mark.parametrize("handler", [Answer, KeepAlive])
def test_http_goes_through_the_connection_and_loses_nothing(
    sshd: LocalSshd, handler: type[Answer]
) -> None:
    with CountingServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Head.open(sshd.address()) as head:
            pool = head.http(server.server_port)
            for path in ("/first", "/second"):
                answer = pool.request("GET", path)
                assert answer.status == 200
                assert answer.data == path.encode() * 100_000
            assert server.connections == (1 if handler is KeepAlive else 2)
        server.shutdown()


def test_http_to_a_port_where_nobody_listens_names_the_port(
    sshd: LocalSshd, black_hole: int
) -> None:
    from urllib3.exceptions import NewConnectionError, ReadTimeoutError

    with Head.open(sshd.address()) as head:
        with pytest.raises(NewConnectionError, match="port 1 of the head"):
            head.http(1).request("GET", "/")
        with pytest.raises(ReadTimeoutError):
            head.http(black_hole, timeout=0.2).request("GET", "/")


# Host keys


def test_an_unknown_host_key_is_refused_and_shown(sshd: LocalSshd) -> None:
    said = refusal(sshd.address(alias="somebody-else"))
    assert "not known" in said
    assert offered_key(sshd) in said
    assert "invoke restart --cluster us-east5" in said


def test_a_changed_host_key_is_refused_with_both_fingerprints(sshd: LocalSshd) -> None:
    make_key(sshd.folder / "old_key")
    record_host_key(sshd.known_hosts, sshd.alias, (sshd.folder / "old_key.pub").read_text())
    said = refusal(sshd.address())
    assert "has changed" in said
    assert said.count("SHA256:") == 2
    assert offered_key(sshd) in said


def test_a_key_in_the_operators_own_known_hosts_counts(sshd: LocalSshd, home: Path) -> None:
    key = (sshd.folder / "host_key.pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {key}")
    with Head.open(sshd.address(alias="not-recorded")) as head:
        assert head.run("true", timeout=10).ok


def test_our_record_goes_before_the_operators(sshd: LocalSshd, home: Path) -> None:
    key = (sshd.folder / "host_key.pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {key}")
    make_key(sshd.folder / "old_key")
    record_host_key(sshd.known_hosts, sshd.alias, (sshd.folder / "old_key.pub").read_text())
    assert "has changed" in refusal(sshd.address())


def test_a_revoked_key_is_refused(sshd: LocalSshd) -> None:
    with sshd.known_hosts.open("a") as file:
        file.write(f"@revoked * {(sshd.folder / 'host_key.pub').read_text()}")
    assert "is revoked" in refusal(sshd.address())


def test_the_recorded_kind_of_key_is_asked_for_when_the_head_has_several(sshd: LocalSshd) -> None:
    rsa = sshd.folder / "rsa_key"
    make = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(rsa)]
    subprocess.run(make, check=True)
    sshd.stop()
    sshd.options.append(f"HostKey {rsa}")
    sshd.start()
    record_host_key(sshd.known_hosts, sshd.alias, rsa.with_suffix(".pub").read_text())
    with Head.open(sshd.address()) as head:
        assert head.run("true", timeout=10).ok


def test_plain_ssh_accepts_the_same_record(sshd: LocalSshd) -> None:
    options = {
        "UserKnownHostsFile": sshd.known_hosts,
        "HostKeyAlias": sshd.alias,
        "StrictHostKeyChecking": "yes",
        "IdentityFile": sshd.folder / "client_key",
    }
    flags = [f"-o{key}={value}" for key, value in options.items()]
    subprocess.run(
        ["ssh", "-F", "none", "-p", str(sshd.port), *flags, "127.0.0.1", "true"], check=True
    )


# Getting in


def test_a_wrong_client_key_is_a_refused_login(sshd: LocalSshd) -> None:
    make_key(sshd.folder / "stranger")
    said = refusal(sshd.address(private_key=sshd.folder / "stranger"))
    assert "login was refused" in said
    assert "invoke status --cluster us-east5" in said


def test_a_missing_or_locked_private_key_says_so(sshd: LocalSshd) -> None:
    with pytest.raises(PrerequisiteMissing, match="no private key"):
        Head.open(sshd.address(private_key=sshd.folder / "nowhere"))
    locked = sshd.folder / "locked"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(locked)]
    subprocess.run(make, check=True)
    with pytest.raises(UsageError, match="ssh-add"):
        Head.open(sshd.address(private_key=locked))


def test_a_refused_connection_is_named(sshd: LocalSshd) -> None:
    sshd.stop()
    assert "Connection refused" in refusal(sshd.address())


def test_a_head_that_never_answers_costs_its_timeout_only(sshd: LocalSshd, black_hole: int) -> None:
    start = time.monotonic()
    assert "did not answer in time" in refusal(sshd.address(port=black_hole), timeout=0.5)
    assert time.monotonic() - start < OPEN_SECONDS


def test_failures_leave_no_noise_on_the_terminal(
    sshd: LocalSshd, capfd: pytest.CaptureFixture[str]
) -> None:
    # Without handlers, as in a task: pytest's own would catch what Python's last resort prints.
    root, kept = logging.getLogger(), logging.getLogger().handlers[:]
    root.handlers.clear()
    try:
        refusal(sshd.address(proxy_command="true"))
    finally:
        root.handlers.extend(kept)
    assert capfd.readouterr() == ("", "")


# Proxies


def test_a_proxy_command_that_is_an_sshd_itself_works(sshd: LocalSshd) -> None:
    before = children()
    with Head.open(sshd.address(host="some-vm", proxy_command=sshd.inetd_command)) as head:
        assert head.run("echo $SSH_ORIGINAL_COMMAND hello", timeout=10).stdout == "hello\n"
        assert len(children() - before) == 1
    assert children() == before


def test_a_failing_proxy_command_is_quoted_at_once(sshd: LocalSshd) -> None:
    command = "sh -c 'echo no such container: $0 >&2; exit 5' %h"
    start = time.monotonic()
    said = refusal(sshd.address(host="vm; touch x", proxy_command=command), timeout=60.0)
    assert "sh exited with 5: no such container: vm; touch x" in said
    assert time.monotonic() - start < 60.0


def test_a_silent_proxy_is_ended_with_its_children(sshd: LocalSshd) -> None:
    before = children()
    refusal(sshd.address(proxy_command="sh -c 'sleep 600; true'"), timeout=0.3)
    assert children() == before


def test_ssh_config_is_honoured_and_the_address_wins(sshd: LocalSshd, home: Path) -> None:
    config = home / ".ssh" / "config"
    key = sshd.folder / "client_key"
    config.write_text(
        f"Host head-*\n HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {key}\n"
        " ProxyCommand false\n"
    )
    named = {"host": "head-a", "port": 22, "private_key": None}
    assert "false exited with 1" in refusal(sshd.address(**named))
    with Head.open(sshd.address(**named, proxy_command=sshd.inetd_command)) as head:
        assert head.run("true", timeout=10).ok
    config.write_text(config.read_text().replace(" ProxyCommand false\n", ""))
    with Head.open(sshd.address(**named)) as head:
        assert head.run("true", timeout=10).ok


def test_a_jump_host_must_be_known_too(sshd: LocalSshd, home: Path) -> None:
    key = sshd.folder / "client_key"
    (home / ".ssh" / "config").write_text(
        f"Host head-a\n HostName 127.0.0.1\n Port {sshd.port}\n ProxyJump localhost:{sshd.port}\n"
        f"Host localhost\n IdentityFile {key}\n"
    )
    address = sshd.address(host="head-a", port=22)
    assert "the host key of localhost is not known" in refusal(address)
    known = (sshd.folder / "host_key.pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"[localhost]:{sshd.port} {known}")
    with Head.open(address) as head:
        assert head.run("true", timeout=10).ok
        assert len(sshd.sessions()) == 2
    wait_until(lambda: not sshd.sessions(), what="both sessions to end", timeout=10)


def children() -> set[int]:
    path = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
    return {int(pid) for pid in path.read_text().split()}
