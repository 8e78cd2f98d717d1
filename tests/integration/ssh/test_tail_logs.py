"""invoke tail-logs as an operator types it, against the heads of a fleet on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.batches import CPP, DATED, TRACE, at
from tests.support.loopback_fleet import LoopbackFleet
from tests.support.processes import with_default_signals
from tests.support.sshd import PROGRAM

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason="needs sshd"),
]

INVOKE = str(Path(sys.executable).with_name("invoke"))
SECONDS = 120.0
HEADS = ("us-central2", "us-east5")
HOSTILE = b"\x1b]0;owned\x07\x1b[2J \xff\x00\xe2\x80\xae end\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> LoopbackFleet:
    """Three clusters, of which the one in Europe has no head."""
    fleet = LoopbackFleet(folder=tmp_path_factory.mktemp("tail") / "fleet")
    for name in HEADS:
        fleet.add_head(name)
    return fleet


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that both heads have, as they are one machine."""
    path = tmp_path / "monitor.log"
    path.write_bytes(DATED + TRACE + CPP)
    return path


@contextmanager
def tail_logs(
    fleet: LoopbackFleet, *words: str, out: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process, which is not left behind."""
    with subprocess.Popen(
        with_default_signals(INVOKE, "tail-logs", *words),
        cwd=fleet.folder,
        env=fleet.environment(),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(fleet: LoopbackFleet, *words: str) -> tuple[int, bytes, str]:
    """The code, output and narration of the command."""
    with tail_logs(fleet, *words) as process:
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err.decode()


def test_lines_of_all_heads_come_prefixed_and_a_missing_head_is_told(
    fleet: LoopbackFleet, log: Path
) -> None:
    code, out, err = finished(fleet, "--no-follow", "--log", str(log))
    lines = out.splitlines()
    for name in HEADS:
        assert [line for line in lines if line.startswith(name.encode())] == [
            f"{name:<12} | ".encode() + line for line in (DATED + TRACE + CPP).splitlines()
        ]
    assert "europe-west4" in err
    assert code == 2


def test_filters_and_the_order_of_times_reach_from_the_flags_to_the_screen(
    fleet: LoopbackFleet, log: Path
) -> None:
    log.write_bytes(at(1, "first") + at(2, "refused") + at(3, "last") + TRACE)
    code, out, err = finished(
        *(fleet, "--no-follow", "--cluster", "us-*", "--log", str(log), "--merge"),
        *("--include", "first|ValueError", "--exclude", "refused"),
        *("--template", "{cluster} {message:.60}"),
    )
    assert (code, err) == (0, "")
    first, *rest = out.decode().splitlines()
    assert {first.split(" ", 1)[1], rest[0].split(" ", 1)[1]} == {at(1, "first").decode().strip()}
    assert sorted(line for line in rest[1:] if "ValueError" in line) == [
        f"{name} ValueError: bad" for name in HEADS
    ]
    assert len(rest) == 1 + 2 * 4


def test_hostile_bytes_reach_no_terminal_and_break_no_json(fleet: LoopbackFleet, log: Path) -> None:
    log.write_bytes(HOSTILE)
    words = ("--no-follow", "--cluster", "us-east5", "--log", str(log))
    code, out, _ = finished(fleet, *words, "--output", "jsonl")
    assert code == 0
    found = json.loads(out)
    assert found["message"] == HOSTILE[:-1].decode(errors="replace")
    assert (found["cluster"], found["offset"], found["time"]) == ("us-east5", 0, None)
    ours, theirs = os.openpty()
    with tail_logs(fleet, *words, "--color", "never", out=theirs) as process:
        os.close(theirs)
        screen = b""
        with suppress(OSError):  # the end of a terminal
            while chunk := os.read(ours, 65536):
                screen += chunk
        assert process.wait(SECONDS) == 0
    os.close(ours)
    assert b"\x1b]" not in screen
    assert b"\x1b[2J" not in screen
    assert rb"\x1b]0;owned\x07\x1b[2J \xff\x00\u202e end" in screen


def test_what_was_waited_for_ends_it_well_and_what_must_not_come_with_3(
    fleet: LoopbackFleet, log: Path
) -> None:
    words = ("--cluster", "us-east5", "--log", str(log))
    code, out, _ = finished(fleet, *words, "--until-match", "ValueError")
    assert (code, out.count(b"\n")) == (0, 4)
    code, out, err = finished(fleet, *words, "--fail-on", "slow", "--until-match", "never")
    assert (code, out.count(b"\n")) == (3, 5)
    assert "--fail-on 'slow'" in err
    code, _, err = finished(fleet, *words, "--no-follow", "--until-match", "never")
    assert code == 2
    assert "--until-match 'never'" in err


def test_following_ends_well_with_ctrl_c_and_with_its_reader(
    fleet: LoopbackFleet, log: Path
) -> None:
    words = ("--cluster", "us-east5", "--log", str(log), "--tail", "1")
    with tail_logs(fleet, *words) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"us-east5 | " + CPP
        with log.open("ab") as stream:
            stream.write(DATED)
        assert process.stdout.readline() == b"us-east5 | " + DATED
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert process.stdout.read() == b""
    with tail_logs(fleet, *words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"us-east5 | " + DATED
        process.stdout.close()
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == b""


def test_a_full_disk_is_one_clear_error(fleet: LoopbackFleet, log: Path) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        tail_logs(fleet, "--cluster", "us-east5", "--log", str(log), out=full.fileno()) as process,
    ):
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert err.decode().splitlines() == ["error: stdout cannot be written: No space left on device"]


def test_a_log_that_is_nowhere_is_told_with_the_way_to_find_its_name(
    fleet: LoopbackFleet, tmp_path: Path
) -> None:
    code, out, err = finished(
        fleet, "--no-follow", "--cluster", "us-*", "--log", str(tmp_path / "nothing.log")
    )
    assert (code, out) == (1, b"")
    assert "none of 2 nodes has such a log" in err
    assert "next: invoke exec --cluster us-central2 " in err
