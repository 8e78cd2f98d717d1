"""The operator gets SIGKILL at every write to the journal, and at every change of a cluster;
whatever the moment, another process goes on and the end is the same."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dying_operator import SCENARIOS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[3]
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is some: a kill loses nothing that was written, synced or not."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


def rehearse(folder: Path, scenario: str) -> dict[str, Any]:
    # A process of its own, because it forks: pytest's has threads.
    argv = [sys.executable, "-m", "tests.support.dying_operator", folder, scenario]
    ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_write_changes_nothing_in_the_end(folder: Path, scenario: str) -> None:
    found = rehearse(folder, scenario)
    assert found["problems"] == []
    # 11 of 12 steps write an intent and an end, and no scenario has less than a cluster.
    assert found["killed"] > 22


@pytest.mark.parametrize("writes", [6, 11])
def test_processes_that_all_die_young_get_there_together(folder: Path, writes: int) -> None:
    found = rehearse(folder, str(writes))
    assert found["killed"] > 60 // writes
