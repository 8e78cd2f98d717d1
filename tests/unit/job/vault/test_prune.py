"""Pruning takes what is old and what nobody needs, and never what a backup needs."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from rayfleet.errors import Locked
from rayfleet.job.vault.hold import alone, shared
from rayfleet.job.vault.pruning import Pruned
from rayfleet.job.vault.store import Vault
from tests.unit.job.vault.examples import OTHER, TAKEN, URI, backup, job, keep, save

DAY = timedelta(days=1)
MONTH = 30 * DAY


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_old_backups_go_and_so_do_packages_that_only_they_name(vault: Vault) -> None:
    old = save(vault, job("old"), contents={URI: b"shared", OTHER: b"alone"}, taken=TAKEN - MONTH)
    new = save(vault, job("new"), contents={URI: b"shared"})
    now = TAKEN + timedelta(seconds=1)
    plan = vault.plan_prune(MONTH, now=now)
    document = vault.root / "backups" / f"{old.id}.json"
    assert plan == Pruned(
        backups=(old.id,), packages=1, size=len(b"alone") + document.stat().st_size
    )
    assert vault.backups() == (new, old)  # a plan deletes nothing
    assert vault.prune(MONTH, now=now) == plan
    assert vault.backups() == (new,)
    assert names(vault.root / "packages") == [new.packages[0].sha256]
    assert vault.prune(MONTH, now=now) == Pruned()


def test_a_backup_of_exactly_the_age_stays(vault: Vault) -> None:
    save(vault, job())
    assert vault.prune(MONTH, now=TAKEN + MONTH) == Pruned()
    assert len(vault.prune(MONTH, now=TAKEN + MONTH + DAY).backups) == 1


def test_packages_that_no_backup_names_go(vault: Vault) -> None:
    keep(vault, {URI: b"of a run that was killed"})
    assert vault.prune(MONTH, now=TAKEN).packages == 1
    assert names(vault.root / "packages") == []


def leave_behind(vault: Vault) -> None:
    """What a killed run leaves: a folder that nobody fetches into any more, and a file."""
    left = vault.root / "incoming" / "tmpleft"
    left.mkdir()
    (left / "package").write_bytes(b"half")
    (vault.root / "incoming" / "file").touch()


def test_what_a_killed_run_had_fetched_is_removed_by_pruning(vault: Vault) -> None:
    save(vault, job())
    leave_behind(vault)
    assert vault.prune(MONTH, now=TAKEN) == Pruned(leftovers=2)
    assert names(vault.root / "incoming") == []


def test_and_by_the_next_writer_unless_another_one_writes(vault: Vault) -> None:
    save(vault, job())
    with vault.incoming() as first:
        leave_behind(vault)
        with vault.incoming() as second:
            there = {first.name, second.name, "tmpleft", "file"}
            assert set(names(vault.root / "incoming")) == there
    with vault.incoming() as third:
        assert names(vault.root / "incoming") == [third.name]


def test_a_damaged_backup_keeps_its_packages_until_it_is_old(vault: Vault) -> None:
    saved = save(vault, job(), contents={URI: b"zip"})
    document = vault.root / "backups" / f"{saved.id}.json"
    document.write_bytes(document.read_bytes()[:-2])
    assert vault.prune(MONTH, now=TAKEN + DAY) == Pruned()
    assert vault.package(saved.packages[0].sha256)
    pruned = vault.prune(MONTH, now=TAKEN + MONTH + DAY)
    assert (pruned.backups, pruned.packages) == ((saved.id,), 1)


def test_a_folder_that_is_called_like_a_backup_does_not_stop_pruning(vault: Vault) -> None:
    old = save(vault, job())
    folder = vault.root / "backups" / "east-20200101T000000Z-0123456789.json"
    folder.mkdir()
    assert vault.prune(MONTH, now=TAKEN + MONTH + DAY).backups == (old.id,)
    assert folder.is_dir()


def test_while_a_backup_is_written_nothing_is_pruned(vault: Vault) -> None:
    with vault.incoming() as folder:
        (folder / "package").write_bytes(b"zip")
        package = vault.keep(URI, folder / "package")
        with pytest.raises(Locked, match="a backup is being written") as locked:
            vault.prune(timedelta(0), now=TAKEN + DAY)
        assert locked.value.code == 5
        saved = vault.save(backup(job(), packages=(package,)))
    assert vault.problems(saved) == ()
    assert len(vault.prune(timedelta(0), now=TAKEN + DAY).backups) == 1


def test_many_write_at_once_and_leave_each_other_alone(vault: Vault) -> None:
    together = threading.Barrier(8)

    def write(number: int) -> None:
        together.wait(timeout=60)
        with vault.incoming() as folder:
            (folder / "package").write_bytes(b"zip %d" % (number % 3))
            package = vault.keep(URI, folder / "package")
            vault.save(backup(job(f"job-{number}"), packages=(package,)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len(vault.backups()) == 8
    assert len(names(vault.root / "packages")) == 3
    assert names(vault.root / "incoming") == []


def test_the_lock_is_shared_by_writers_and_exclusive_for_who_deletes(tmp_path: Path) -> None:
    lock = tmp_path / "vault.lock"
    lonely: list[str] = []
    with (
        shared(lock, when_alone=lambda: lonely.append("first")),
        shared(lock, when_alone=lambda: lonely.append("second")),
        pytest.raises(Locked),
        alone(lock, timeout=0),
    ):
        pass
    assert lonely == ["first"]
    with (
        alone(lock),
        pytest.raises(Locked, match="old backups are being deleted"),
        shared(lock, timeout=0),
    ):
        pass
    assert lock.stat().st_mode & 0o777 == 0o600


def test_a_writer_waits_for_who_deletes(tmp_path: Path) -> None:
    lock = tmp_path / "vault.lock"
    with ThreadPoolExecutor(1) as pool:
        with alone(lock):
            writer = pool.submit(_hold, lock)
            assert not writer.done()
        assert writer.result(timeout=60)


def _hold(lock: Path) -> bool:
    with shared(lock):
        return True


def test_what_is_needed_stays_with_its_packages_and_what_tells_of_its_jobs_since(
    vault: Vault,
) -> None:
    """Without the newer one, a restore from the older would run jobs that have ended since."""
    older = save(vault, job("a"), taken=TAKEN - 2 * DAY)
    needed = save(vault, job("b"), contents={URI: b"b"}, taken=TAKEN - DAY)
    newer = save(vault, job("c"), taken=TAKEN)
    other = save(vault, job("d"), cluster="elsewhere", taken=TAKEN)

    def protect(ids: Collection[str]) -> dict[str, str]:
        assert set(ids) == {older.id, needed.id, newer.id, other.id}
        return {needed.id: "a rollout"}

    now = TAKEN + 2 * MONTH
    plan = vault.plan_prune(MONTH, now=now, protect=protect)
    assert set(plan.backups) == {older.id, other.id}
    assert plan.kept == {
        needed.id: "a rollout",
        newer.id: f"it tells which jobs of {needed.id} have ended since",
    }
    assert vault.prune(MONTH, now=now, protect=protect) == plan
    assert vault.backups() == (newer, needed)
    assert vault.problems(needed) == ()
