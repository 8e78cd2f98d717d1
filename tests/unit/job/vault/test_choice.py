"""Which backup is given back when nobody named one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rayfleet.job.model import JobStatus
from rayfleet.job.vault.choice import Ambiguous, default_backup
from rayfleet.job.vault.model import Backup, SavedJob
from rayfleet.job.vault.store import NoBackup, Vault
from tests.unit.job.vault.examples import TAKEN, job, save


def later(vault: Vault, minutes: int, *jobs: SavedJob, **changes: Any) -> Backup:
    return save(vault, *jobs, taken=TAKEN + timedelta(minutes=minutes), **changes)


def chosen(vault: Vault) -> tuple[Backup, list[str]]:
    said: list[str] = []
    return default_backup(vault, "east", said.append), said


def test_without_any_backup_there_is_none_to_choose(vault: Vault) -> None:
    with pytest.raises(NoBackup):
        chosen(vault)


def test_the_latest_is_chosen_in_silence(vault: Vault) -> None:
    later(vault, 0, job("a"))
    latest = later(vault, 1, job("a"), job("b"))
    assert chosen(vault) == (latest, [])


def test_empty_backup_of_a_new_head_does_not_pass_for_the_lost_jobs(vault: Vault) -> None:
    full = later(vault, 0, job("a"), job("b"))
    later(vault, 1, session="session_2")
    with pytest.raises(Ambiguous) as error:
        chosen(vault)
    assert f"--backup {full.id}" in error.value.next_step
    assert "a, b" in error.value.why


def test_jobs_that_were_seen_to_end_are_not_missed(vault: Vault) -> None:
    later(vault, 0, job("a"), job("b"))
    later(vault, 1, ended={"a": JobStatus.SUCCEEDED, "b": JobStatus.FAILED})
    empty = later(vault, 2, session="session_2")
    assert chosen(vault) == (empty, [])


def test_empty_backup_of_the_same_head_is_what_it_says(vault: Vault) -> None:
    later(vault, 0, job("a"))
    empty = later(vault, 1)
    assert chosen(vault) == (empty, [])


def test_backup_in_the_middle_of_a_restore_does_not_pass_for_the_whole(vault: Vault) -> None:
    full = later(vault, 0, job("a"), job("b"))
    later(vault, 1, job("b"), job("c"), session="session_2")
    with pytest.raises(Ambiguous) as error:
        chosen(vault)
    assert f"--backup {full.id}" in error.value.next_step
    assert error.value.why.endswith(": a")


def test_restored_jobs_are_not_missed(vault: Vault) -> None:
    later(vault, 0, job("a"))
    latest = later(vault, 1, job("a"), session="session_2")
    assert chosen(vault) == (latest, [])


def test_jobs_of_the_infrastructure_are_not_missed(vault: Vault) -> None:
    later(vault, 0, job("cleanup", infrastructure=True))
    empty = later(vault, 1, session="session_2")
    assert chosen(vault) == (empty, [])


def test_newer_backup_that_is_incomplete_is_told_of(vault: Vault) -> None:
    complete = later(vault, 0, job("a"))
    newer = later(vault, 1, job("b", missing=("its label selector",)))
    backup, said = chosen(vault)
    assert backup == complete
    assert said == [f"{newer.id} is newer than {complete.id}, but incomplete"]
