"""The program as it is sent, in the Python of a node."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayfleet.log import frames
from rayfleet.log.frames import FrameReader
from rayfleet.log.remote import program
from tests.support.log_reader import request

FOLDER = Path(program.__file__).parent
PATIENCE_SECONDS = 60
PYTHON = sys.executable


@pytest.fixture
def ray(tmp_path: Path) -> Path:
    """A folder like /tmp/ray with one session."""
    begin(tmp_path, 1)
    return tmp_path


def begin(root: Path, number: int) -> Path:
    session = root / f"session_2026-11-21_00-00-0{number}_0_1"
    (session / "logs").mkdir(parents=True)
    (root / "next").symlink_to(session)
    (root / "next").rename(root / "session_latest")
    return session / "logs"


@dataclass
class Process:
    """A running program, and what it has written so far."""

    running: subprocess.Popen[bytes]
    reader: FrameReader
    seen: list[frames.Frame]

    def until(self, kind: type, text: str = "") -> Any:
        """The next frame of a kind, with ``text`` in it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        assert self.running.stdout
        while True:
            for index, frame in enumerate(self.seen):
                if isinstance(frame, kind) and text in str(frame):
                    del self.seen[: index + 1]
                    return frame
            assert time.monotonic() < deadline, self.seen
            chunk = os.read(self.running.stdout.fileno(), 1 << 20)
            assert chunk, self.seen
            self.seen += self.reader.feed(chunk)


@contextmanager
def started(fields: dict[str, Any]) -> Iterator[Process]:
    process = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", program.BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    try:
        process.stdin.write(program.payload(fields))
        process.stdin.close()
        yield Process(process, FrameReader("node"), [])
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream
            stream.close()


def all_frames(fields: dict[str, Any]) -> list[frames.Frame]:
    """Everything that a program writes that does not follow."""
    finished = subprocess.run(
        [PYTHON, "-I", "-S", "-c", program.BOOT],
        input=program.payload({**fields, "follow": False}),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert finished.stderr == b""
    return list(FrameReader("node").feed(finished.stdout))


def lines(found: list[frames.Frame]) -> bytes:
    return b"".join(frame.lines for frame in found if isinstance(frame, frames.Data))


@pytest.mark.parametrize("name", program.MODULES)
def test_each_module_is_for_python_3_8_and_needs_nothing(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(), feature_version=(3, 8))
    allowed = {f"rayfleet.log.remote.{module}" for module in program.MODULES}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and "rayfleet" in node.module:
            assert node.module in allowed
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert {each.partition(".")[0] for each in names} <= sys.stdlib_module_names


def test_the_program_fits_into_what_a_shell_reads_at_once() -> None:
    assert len(program.command("ray_docker", 20_000)) < 4096
    assert len(program.payload(request(Path("/tmp/ray"), "monitor.*"))) < 32 * 1024


def test_the_command_runs_it_where_there_is_no_container(ray: Path) -> None:
    (ray / "session_latest/logs/monitor.log").write_text("hello\n")
    fields = request(ray, "monitor.*", follow=False)
    shell = subprocess.run(
        ["sh", "-c", f"echo a greeting; {program.command('', 0)}"],
        input=program.payload(fields),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert lines(list(FrameReader("node").feed(shell.stdout))) == b"hello\n"


def test_without_following_it_ends_at_the_end(ray: Path) -> None:
    logs = ray / "session_latest/logs"
    (logs / "monitor.log.1").write_text("".join(f"old {n}\n" for n in range(10)))
    (logs / "monitor.log").write_text("".join(f"new {n}\n" for n in range(3)) + "begun")
    (logs / "monitor.err").touch()
    found = all_frames(request(ray, "monitor.*", tail=6))
    assert lines(found) == b"old 8\nold 9\nnew 0\nnew 1\nnew 2\nbegun\n"
    assert [type(frame).__name__ for frame in found][-2:] == ["CaughtUp", "Finished"]
    assert lines(all_frames(request(ray, "monitor.*"))).count(b"\n") == 14


def test_it_tells_why_there_is_nothing(ray: Path) -> None:
    def reason(fields: dict[str, Any]) -> str:
        last = all_frames(fields)[-1]
        assert isinstance(last, frames.Refused)
        return last.reason

    assert reason(request(ray / "nowhere", "monitor.*")) == "no-ray"
    assert reason(request(ray, "monitor.*")) == "no-files"
    assert reason(request(ray, "monitor.*", include=["("])) == "bad-request"
    assert reason(request(ray, "monitor.*", tail="many")) == "bad-request"


def test_filters_keep_whole_records(ray: Path) -> None:
    stamp = "2026-11-21 01:00:0{},000\t{} x.py:1 -- {}\n"
    (ray / "session_latest/logs/monitor.log").write_text(
        stamp.format(1, "INFO", "fine")
        + stamp.format(2, "ERROR", "bad")
        + "Traceback (most recent call last):\n  File x\nKeyError: needle\n"
        + stamp.format(3, "INFO", "fine again")
    )
    kept = lines(all_frames(request(ray, "monitor.*", include=["needle"])))
    assert kept.startswith(b"2026-11-21 01:00:02")
    assert kept.endswith(b"needle\n")
    assert lines(all_frames(request(ray, "monitor.*", level="ERROR"))) == kept


def test_it_waits_for_ray_for_files_and_for_sessions(tmp_path: Path) -> None:
    root = tmp_path / "ray"
    with started(request(root, "monitor.*", tail=0)) as process:
        process.until(frames.Said, "no session")
        process.until(frames.CaughtUp)
        logs = begin(root, 1)
        (logs / "monitor.log").write_text("first\n")
        assert process.until(frames.Data).lines == b"first\n"
        with (logs / "monitor.log").open("a") as log:
            log.write("second\n")
        assert process.until(frames.Data).lines == b"second\n"
        logs = begin(root, 2)
        process.until(frames.Said, "new session")
        (logs / "monitor.out").write_text("third\n")
        assert process.until(frames.Opened).session.endswith("02_0_1")
        assert process.until(frames.Data).lines == b"third\n"


def test_it_ends_when_nobody_reads_any_more(ray: Path) -> None:
    with started(request(ray, "monitor.*")) as process:
        process.until(frames.CaughtUp)
        assert process.running.stdout
        process.running.stdout.close()
        assert process.running.wait(PATIENCE_SECONDS) == 0


def test_it_says_that_it_is_there(ray: Path) -> None:
    with started(request(ray, "monitor.*")) as process:
        process.until(frames.Beat)


def test_until_ends_it(ray: Path) -> None:
    (ray / "session_latest/logs/monitor.log").write_text("begun")
    with started(request(ray, "monitor.*", until=time.time() + 0.5)) as process:
        assert process.until(frames.Data).lines == b"begun\n"
        process.until(frames.Finished)


def test_a_request_names_what_it_knows_and_begins_there(ray: Path) -> None:
    log = ray / "session_latest/logs/monitor.log"
    log.write_text("one\ntwo\n")
    found = all_frames(request(ray, "monitor.*"))
    file = next(frame for frame in found if isinstance(frame, frames.Opened))
    data = next(frame for frame in found if isinstance(frame, frames.Data))
    cursor = {
        "path": file.path,
        "session": file.session,
        "device": file.device,
        "inode": file.inode,
        "offset": data.end,
        "mark": data.mark,
        "done": False,
    }
    log.rename(log.with_name("monitor.log.1"))
    log.write_text("three\n")
    again = all_frames(request(ray, "monitor.*", first=False, cursors=[cursor]))
    assert lines(again) == b"three\n"
