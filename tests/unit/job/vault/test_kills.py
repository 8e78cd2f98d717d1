"""A run that is killed, wherever it is, leaves a vault that is right and a rerun that works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.store import Vault
from tests.unit.job.vault.dying import WORKS, prune_old, save_new, save_old

ROOT = Path(__file__).parents[4]


def killed_at_every_step(folder: Path, work: str) -> list[Vault]:
    """A vault for each step of ``work`` on the disk, at which it was killed."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.unit.job.vault.dying", folder, work],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return [Vault(folder / str(step)) for step in range(int(finished.stdout))]


def sound(vault: Vault) -> tuple[str, ...]:
    """The ids of the backups of the vault, which must all be whole."""
    found = vault.backups()
    for one in found:
        assert isinstance(one, Backup)
        assert vault.load(one.id) == one
        assert vault.problems(one) == ()
    return tuple(one.id for one in found)


def stored(vault: Vault) -> list[str]:
    return sorted(path.read_text() for path in (vault.root / "packages").iterdir())


def leftovers(vault: Vault) -> list[Path]:
    folder = vault.root / "incoming"
    return list(folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("work", ["first", "save"])
def test_a_backup_killed_at_any_step_is_whole_or_not_there(tmp_path: Path, work: str) -> None:
    whole = Vault(tmp_path / "whole")
    for prepare in WORKS[work]:
        prepare(whole)
    after = sound(whole)
    vaults = killed_at_every_step(tmp_path, work)
    assert len(vaults) >= 15
    seen = [sound(vault) for vault in vaults]
    assert set(seen) == {after[1:], after}
    assert sorted(seen, key=len) == seen
    assert any(leftovers(vault) for vault in vaults)
    for vault in vaults:
        assert save_new(vault).id == after[0]
        assert sound(vault) == after
        assert stored(vault) == stored(whole)
        assert leftovers(vault) == []


def test_pruning_killed_at_any_step_takes_no_package_from_a_backup(tmp_path: Path) -> None:
    whole = Vault(tmp_path / "whole")
    old, new = save_old(whole).id, save_new(whole).id
    vaults = killed_at_every_step(tmp_path, "prune")
    assert len(vaults) >= 3
    assert {sound(vault) for vault in vaults} == {(new, old), (new,)}
    for vault in vaults:
        prune_old(vault)
        assert sound(vault) == (new,)
        assert stored(vault) == ["new", "shared"]
