"""What `invoke --list` may import: every module more is paid at each press of TAB."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Beyond what Invoke itself imports for an empty tasks.py.
ALLOWED = {
    "rayfleet",
    "rayfleet.console",
    "rayfleet.errors",
    "rayfleet.project",
    "rayfleet.harmless",
    "rayfleet.tasks",
    "rayfleet.tasks.edge",
    # the collections: one module each, @task wrappers only
    "rayfleet.tasks.auth",
    "rayfleet.tasks.cluster",
    "rayfleet.tasks.dashboard",
    "rayfleet.tasks.doctor",
    "rayfleet.tasks.fleet",
    "rayfleet.tasks.garbage",
    "rayfleet.tasks.head",
    "rayfleet.tasks.image",
    "rayfleet.tasks.job",
    "rayfleet.tasks.log",
    "rayfleet.tasks.registry",
    "rayfleet.tasks.release",
    "rayfleet.tasks.rollout",
    "rayfleet.tasks.sandbox",
    "rayfleet.tasks.vault",
    "rayfleet.tasks.worker",
    # no collections: the end of our readers, optional words of a command line, and wrong ones
    "rayfleet.tasks.broken_pipe",
    "rayfleet.tasks.mistyped",
    "rayfleet.tasks.words",
}
HEAVY = (
    "aiohttp",
    "fabric",
    "paramiko",
    "docker",
    "google",
    "grpc",
    "pydantic",
    "rich",
    "jinja2",
    "jsonschema",
    "ray",
    "requests",
    "urllib3",
    "filelock",
    "stamina",
    "isal",
    "zstandard",
)

LIST_AND_DUMP = """
import sys
from invoke.main import program
try:
    program.run(["invoke", "--list"], exit=False)
except SystemExit:
    pass
print("modules:", *sorted(sys.modules))
"""


def modules_after_list(folder: Path) -> set[str]:
    """The modules of a process that ran `invoke --list` in ``folder``."""
    finished = subprocess.run(
        [sys.executable, "-c", LIST_AND_DUMP],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(finished.stdout.rpartition("modules:")[2].split())


@pytest.fixture(scope="module")
def ours() -> set[str]:
    return modules_after_list(ROOT)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "tasks.py").write_text("")
    return modules_after_list(folder)


def test_listing_imports_nothing_but_the_tasks(ours: set[str], bare: set[str]) -> None:
    assert {"invoke", "tasks"} <= bare  # else nothing was measured
    assert sorted(ours - bare - ALLOWED) == []


def test_listing_imports_no_heavy_library(ours: set[str]) -> None:
    assert "rayfleet.tasks.cluster" in ours
    assert sorted(name for name in ours if name.partition(".")[0] in HEAVY) == []


def test_invoke_and_fabric_are_the_pair_that_runs_together() -> None:
    invoke, fabric = (tuple(map(int, version(name).split("."))) for name in ("invoke", "fabric"))
    assert invoke[:2] == (2, 2)
    assert fabric >= (3, 2, 3)
