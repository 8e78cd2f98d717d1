"""The operator is killed at every step of a backup and of a restore; the next run finishes it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tests.support import job_matrix as jobs
from tests.support.depth import DEEP
from tests.support.job_matrix import CLEANUP, KINDS, LATE, SETTING_UP, Kind
from tests.support.sandbox_head import SandboxHead
from tests.support.vault_files import sound_backups

CLUSTER = "us-central2"
BACKUP = ["jobs.backup", "--cluster", CLUSTER, "--json"]
BACKUP_STEPS = ("jobs of us-central2: started", "have not ended", "saved gcs", "written")
# Slowly: a kill comes some jobs later than the line that it is for.
RESTORE = ["jobs.restore", "--cluster", CLUSTER, "--per-second", "2", "--json"]
# Each line with how often it must have come.
RESTORE_STEPS = (
    ("jobs of us-central2: started", 1),
    (" put", 1),
    ("packages proved", 1),
    ("restored ", 1),
    ("restored ", 4),
    ("watching", 1),
)
DAILY_STEPS = ((" put", 1), ("restored ", 4), ("watching", 1))


def _says(what: str, times: int = 1) -> Callable[[str], bool]:
    lines = count(1)
    return lambda line: what in line and next(lines) == times


def _alive(facts: dict[str, Any]) -> dict[str, str]:
    states = {name: job["status"] for name, job in facts["jobs"].items()}
    return {name: state for name, state in states.items() if state in {"RUNNING", "PENDING"}}


def test_backup_that_is_killed_at_any_step_leaves_no_half_one(matrix: SandboxHead) -> None:
    vault = matrix.cli.state / "vault"
    for step in (*BACKUP_STEPS, "verified"):
        had = sound_backups(vault) if vault.exists() else []
        matrix.cli.kill_when(BACKUP, _says(step))
        have = sound_backups(vault) if vault.exists() else []
        # A kill may come after the step that follows its line.
        assert set(had) <= set(have), step
        assert len(have) - len(had) in ({0, 1} if step in BACKUP_STEPS[:-1] else {1}), step
    saved = matrix.cli(*BACKUP).must().json()
    assert saved["complete"]
    expected = set(_alive(matrix.facts()))
    assert {*saved["jobs"], *saved["infrastructure"]} == expected
    assert list((vault / "incoming").iterdir()) == []
    rows = matrix.cli("jobs.vault", "--cluster", CLUSTER, "--json").must().json()["backups"]
    assert {row["id"] for row in rows} == {
        name for name in sound_backups(vault) if name.startswith(f"{CLUSTER}-2")
    }
    assert {row["state"] for row in rows} == {"complete"}


def test_restore_that_is_killed_again_and_again_is_finished_at_last(
    matrix: SandboxHead,
) -> None:
    jobs.end(matrix, "../go")
    before, had = matrix.facts(), jobs.runs(matrix)
    kinds = [kind for kind in _present(before) if kind is not CLEANUP]
    matrix.cli(*BACKUP).must()
    stopped = matrix.cli("stop", "--cluster", CLUSTER, "--yes").must()
    assert "me@here" in stopped.err
    matrix.cli("start", "--cluster", CLUSTER).must()
    for step, times in RESTORE_STEPS if DEEP else DAILY_STEPS:
        matrix.cli.kill_when(RESTORE, _says(step, times))
    done = matrix.cli(*RESTORE).must().json()
    names = {kind.name for kind in kinds}
    assert {row["job"]: row["outcome"] for row in done["jobs"]} == dict.fromkeys(
        names, "already there"
    )
    lines = {kind.name: len(had.get(kind.name, ())) + 1 for kind in kinds}
    after = jobs.wait_for(matrix, kinds, lines=lines)
    was, now = jobs.submitted(before), jobs.submitted(after)
    assert now == {name: was[name] for name in names}
    order = [name for name in jobs.in_order(before) if name in names]
    assert jobs.in_order(after) == order
    needed = {uri for name in names for uri in jobs.named_packages(now[name])}
    assert after["packages"] == {uri: before["packages"][uri] for uri in needed}
    left = {name: len(found) for name, found in jobs.runs(matrix).items() if name in names}
    assert left == {kind.name: lines[kind.name] for kind in kinds if kind.starts}


def _present(facts: dict[str, Any]) -> list[Kind]:
    """The kinds that run or wait now; the one that waited for its environment starts this time."""
    alive = _alive(facts)
    found = [kind for kind in (*KINDS, LATE) if kind.name in alive]
    return [jobs.starting(kind) if kind is SETTING_UP else kind for kind in found]
