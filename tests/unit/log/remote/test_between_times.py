"""What a node sends of files that were there before: the program itself, run here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rayfleet.log.options import Flags, read_options
from rayfleet.log.remote import program
from tests.support.batches import DATED, MOMENT, TRACE, at


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    session = tmp_path / "session_2026-11-20_08-00-00_000000_1"
    (session / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(session)
    return session / "logs"


def sent(logs: Path, **flags: Any) -> bytes:
    options = read_options(Flags(follow=False, **flags))
    request = {**options.request(), "root": str(logs.parents[1])}
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program.BOOT],
        input=program.payload(request),
        capture_output=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "TZ": "UTC"},
        check=True,
    )
    return finished.stdout


def test_a_file_that_was_not_written_to_since_then_holds_nothing_of_it(logs: Path) -> None:
    (logs / "monitor.err").write_bytes(b"undated and old\n")
    (logs / "monitor.out").write_bytes(b"undated and new\n")
    os.utime(logs / "monitor.err", (MOMENT - 60, MOMENT - 60))
    found = sent(logs, since="2026-11-20T08:16:00Z")
    assert b"undated and new\n" in found
    assert b"undated and old\n" not in found


def test_filters_and_times_are_heeded_on_the_node(logs: Path) -> None:
    (logs / "monitor.log").write_bytes(
        at(1, "early") + at(5, "wanted") + TRACE + at(6, "refused") + at(9, "late")
    )
    found = sent(
        logs,
        since="2026-11-20T08:16:44Z",
        until="2026-11-20T08:16:48Z",
        include=["Value.rror", "refus"],
        exclude=["refused$"],
    )
    assert at(5, "wanted") + TRACE in found
    assert not [word for word in (b"early", b"refused", b"late") if word in found]


def test_the_last_lines_are_counted_before_they_are_filtered(logs: Path) -> None:
    (logs / "monitor.log").write_bytes(DATED + at(9, "last"))
    assert b"last" in sent(logs, tail="1", include=["last"])
    assert b"started" not in sent(logs, tail="1", include=["started"])
