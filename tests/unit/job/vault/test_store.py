"""What is put into the vault is there, whole, for its owner alone, or it is not there at all."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayfleet.errors import PrerequisiteMissing
from rayfleet.job.model import JobStatus
from rayfleet.job.vault.document import encode_backup
from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.records import Damaged
from rayfleet.job.vault.store import DamagedVault, NoBackup, Vault
from tests.support.disk_calls import recorded_calls
from tests.unit.job.vault.examples import OTHER, SECRET, TAKEN, URI, backup, job, keep, save

HOUR = timedelta(hours=1)
PACKAGED = job(runtime_env={"working_dir": URI, "env_vars": {"TOKEN": SECRET}})


def files(vault: Vault) -> list[Path]:
    """All files of the vault but its lock."""
    found = (path for path in vault.root.rglob("*") if path.is_file())
    return sorted(path for path in found if path.name != "vault.lock")


def document(vault: Vault, backup_id: str) -> Path:
    return vault.root / "backups" / f"{backup_id}.json"


def test_a_backup_is_read_back_as_it_was_saved(vault: Vault) -> None:
    saved = save(vault, PACKAGED, contents={URI: b"zip"}, ended={"old": JobStatus.STOPPED})
    raw = document(vault, saved.id).read_bytes()
    assert saved.id == f"east-20261121T130000Z-{sha256(raw).hexdigest()[:10]}"
    assert vault.load(saved.id) == saved
    assert replace(saved, id="") == backup(
        PACKAGED, packages=saved.packages, ended={"old": JobStatus.STOPPED}
    )
    (package,) = saved.packages
    assert vault.package(package.sha256).read_bytes() == b"zip"
    assert (package.uri, package.size) == (URI, 3)


def test_the_same_backup_twice_is_one_backup(vault: Vault) -> None:
    assert save(vault, job()) == save(vault, job())
    assert len(vault.backups()) == 1


def test_looking_makes_nothing(vault: Vault) -> None:
    assert vault.backups() == ()
    assert vault.endings_after(backup()) == {}
    with pytest.raises(NoBackup):
        vault.latest("east")
    with pytest.raises(NoBackup):
        vault.load("east-20261121T130000Z-0123456789")
    with pytest.raises(DamagedVault, match="is not there"):
        vault.package("0" * 64)
    assert vault.prune(HOUR, now=TAKEN).backups == ()
    assert not vault.root.parent.exists()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177])
def test_whatever_the_umask_only_the_owner_may_look(tmp_path: Path, mask: int) -> None:
    # marin-operations.md 6.3, row 14: a backup holds tokens.
    vault = Vault(tmp_path / "vault")
    with umask(mask), vault.incoming() as incoming:
        fetched = incoming / "package"
        fetched.write_bytes(b"zip")
        assert incoming.stat().st_mode & 0o777 == 0o700
        vault.save(backup(PACKAGED, packages=(vault.keep(URI, fetched),)))
    for path in (vault.root, *vault.root.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_that_was_opened_to_others_is_closed_again(vault: Vault) -> None:
    save(vault, job())
    vault.root.chmod(0o755)
    save(vault, job("other"))
    assert vault.root.stat().st_mode & 0o777 == 0o700


def test_equal_bytes_are_stored_once_and_incoming_is_emptied(vault: Vault) -> None:
    first, second = keep(vault, {URI: b"same", OTHER: b"same"})
    save(vault, job(), contents={URI: b"same"})
    assert first.sha256 == second.sha256
    assert [path.name for path in files(vault)].count(first.sha256) == 1
    assert len(files(vault)) == 2
    assert list((vault.root / "incoming").iterdir()) == []


def test_a_damaged_package_is_refused_and_a_new_backup_mends_it(vault: Vault) -> None:
    saved = save(vault, PACKAGED, contents={URI: b"zip"})
    (package,) = saved.packages
    vault.package(package.sha256).write_bytes(b"zap")
    with pytest.raises(DamagedVault, match="is damaged"):
        vault.package(package.sha256)
    assert vault.problems(saved) == (f"{URI} is damaged",)
    with pytest.raises(DamagedVault, match="is damaged"):
        vault.save(backup(job("later"), packages=saved.packages))
    assert vault.backups() == (saved,)
    keep(vault, {URI: b"zip"})
    assert vault.problems(saved) == ()


@pytest.mark.parametrize("name", ["../vault.lock", "", "0" * 63, "G" * 64, "0" * 64 + "/"])
def test_only_a_digest_names_a_package(vault: Vault, name: str) -> None:
    save(vault, job())
    with pytest.raises(DamagedVault, match="is not there"):
        vault.package(name)


def test_nothing_is_saved_whose_package_is_not_there(vault: Vault) -> None:
    (package,) = keep(vault, {URI: b"zip"})
    vault.package(package.sha256).unlink()
    with pytest.raises(DamagedVault, match="is not there"):
        vault.save(backup(PACKAGED, packages=(package,)))
    assert vault.backups() == ()


@pytest.mark.parametrize("cluster", ["", "..", "../east", "a/b", "-a", "a b", "é"])
def test_a_cluster_that_cannot_name_a_file_is_refused(vault: Vault, cluster: str) -> None:
    with pytest.raises(ValueError, match="no name of a cluster"):
        vault.save(backup(cluster=cluster))
    assert not vault.root.exists()


@pytest.mark.parametrize(
    "name", ["", "east", "../../x", "east-20261121T130000Z-0123456789", "/etc/passwd", "\0"]
)
def test_an_unknown_id_is_one_clear_error(vault: Vault, name: str) -> None:
    save(vault, job())
    with pytest.raises(NoBackup, match="there is no backup") as unknown:
        vault.load(name)
    assert unknown.value.next_step == "invoke jobs.vault"


def spoil(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)


def swap(path: Path) -> None:
    """Put a sound document under the name of another."""
    path.write_bytes(encode_backup(backup(job("another"))))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: spoil(path, path.read_bytes()[:-20]),
    "empty": lambda path: spoil(path, b""),
    "changed": lambda path: spoil(path, path.read_bytes().replace(b"train", b"brain", 1)),
    "more": lambda path: spoil(path, path.read_bytes() + b"\n"),
    "another's": swap,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a dead link": lambda path: (path.unlink(), path.symlink_to(path.parent / "loop" / "x")),
    "a loop": lambda path: (path.unlink(), path.symlink_to(path)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_backup_is_never_used(vault: Vault, damage: Callable[[Path], object]) -> None:
    whole = save(vault, job(), taken=TAKEN - HOUR)
    saved = save(vault, PACKAGED, contents={URI: b"zip"})
    path = document(vault, saved.id)
    damage(path)
    assert vault.latest("east") == whole
    with pytest.raises((DamagedVault, NoBackup)) as refused:
        vault.load(saved.id)
    assert SECRET not in str(refused.value)


def test_damaged_backups_are_listed_as_such(vault: Vault) -> None:
    saved = save(vault, PACKAGED, contents={URI: b"zip"})
    path = document(vault, saved.id)
    spoil(path, path.read_bytes().replace(SECRET.encode(), b"x" * len(SECRET)))
    (found,) = vault.backups("east")
    assert found == Damaged(
        id=saved.id,
        why="it is not what was written",
        cluster="east",
        taken=TAKEN.replace(microsecond=0),
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(vault: Vault, data: st.DataObject) -> None:
    saved = save(vault, PACKAGED, contents={URI: b"zip"})
    path = document(vault, saved.id)
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    spoil(path, bytes(raw))
    (found,) = vault.backups()
    assert isinstance(found, Damaged)
    path.unlink()


@pytest.mark.parametrize("name", [".DS_Store", "notes.txt", "east.json", "x-1-2.json"])
def test_a_file_that_is_no_backup_is_listed_and_left_alone(vault: Vault, name: str) -> None:
    saved = save(vault, job())
    foreign = vault.root / "backups" / name
    foreign.write_text("mine")
    assert vault.backups("east") == (saved, Damaged(id=name, why="it is no backup, by its name"))
    assert vault.latest("east") == saved
    vault.prune(HOUR, now=TAKEN + 2 * HOUR)
    assert [path.name for path in (vault.root / "backups").iterdir()] == [name]


def test_a_backup_of_a_newer_rayfleet_is_named_and_kept(vault: Vault) -> None:
    raw = encode_backup(backup(job())).replace(b'"format": 1', b'"format": 2')
    backup_id = f"east-20261121T130000Z-{sha256(raw).hexdigest()[:10]}"
    save(vault, job())
    document(vault, backup_id).write_bytes(raw)
    (found,) = (one for one in vault.backups() if isinstance(one, Damaged))
    assert found.id == backup_id
    with pytest.raises(DamagedVault, match="a newer rayfleet reads it"):
        vault.load(backup_id)


def test_backups_are_listed_newest_first_and_by_cluster(vault: Vault) -> None:
    first = save(vault, job("a"), taken=TAKEN)
    third = save(vault, job("b"), taken=TAKEN + 2 * HOUR)
    second = save(vault, job("c"), taken=TAKEN + HOUR, cluster="east-2")
    assert vault.backups() == (third, second, first)
    assert vault.backups("east") == (third, first)
    assert vault.backups("east-2") == (second,)
    assert vault.backups("west") == ()


def test_the_latest_is_the_newest_that_is_complete(vault: Vault) -> None:
    complete = save(vault, PACKAGED, contents={URI: b"zip"})
    incomplete = save(vault, PACKAGED, taken=TAKEN + HOUR)
    assert incomplete.missing == (f"train: the bytes of {URI}",)
    lacking = save(vault, PACKAGED, contents={URI: b"other"}, taken=TAKEN + 2 * HOUR)
    vault.package(lacking.packages[0].sha256).unlink()
    assert vault.latest("east") == complete
    assert [type(one) for one in vault.backups()] == [Damaged, Backup, Backup]


def test_where_nothing_is_complete_the_error_says_what_there_is(vault: Vault) -> None:
    with pytest.raises(NoBackup, match="none was ever kept here") as none:
        vault.latest("east")
    assert none.value.next_step == "invoke jobs.backup --cluster east"
    incomplete = save(vault, PACKAGED)
    damaged = save(vault, job(), taken=TAKEN - HOUR)
    spoil(document(vault, damaged.id), b"")
    with pytest.raises(NoBackup) as only:
        vault.latest("east")
    assert only.value.why == (f"there is only {incomplete.id} (incomplete), {damaged.id} (damaged)")
    assert only.value.next_step == "invoke jobs.vault --cluster east"


def test_what_newer_backups_know_of_ended_jobs(vault: Vault) -> None:
    # A job that ended by itself between two backups must not run again from the older one.
    stopped, failed = JobStatus.STOPPED, JobStatus.FAILED
    first = save(vault, job("a"), job("b"), ended={"x": stopped}, taken=TAKEN)
    save(vault, job("b"), ended={"a": stopped, "c": failed}, taken=TAKEN + HOUR)
    newest = save(vault, job("c"), ended={"b": failed}, taken=TAKEN + 2 * HOUR)
    save(vault, ended={"d": failed}, taken=TAKEN + 3 * HOUR, cluster="west")
    assert vault.endings_after(first) == {"a": stopped, "b": failed}
    assert vault.endings_after(newest) == {}


def test_endings_are_known_even_from_a_backup_whose_packages_are_gone(vault: Vault) -> None:
    first = save(vault, job("a"))
    ended = {"a": JobStatus.SUCCEEDED}
    later = save(vault, PACKAGED, contents={URI: b"zip"}, ended=ended, taken=TAKEN + HOUR)
    vault.package(later.packages[0].sha256).unlink()
    assert vault.endings_after(first) == ended


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes: the same refusal as a full disk, for everyone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_clear_error_and_leaves_no_backup(vault: Vault) -> None:
    (package,) = keep(vault, {URI: b"zip"})
    with largest_file(100), pytest.raises(PrerequisiteMissing, match="cannot write") as full:
        vault.save(backup(PACKAGED, packages=(package,)))
    assert full.value.next_step
    assert vault.backups() == ()
    assert [path.name for path in files(vault)] == [package.sha256]
    saved = vault.save(backup(PACKAGED, packages=(package,)))
    assert vault.latest("east") == saved


def test_a_place_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    vault = Vault(tmp_path / "file")
    with pytest.raises(PrerequisiteMissing, match="cannot write"):
        vault.save(backup(job()))
    with pytest.raises(PrerequisiteMissing, match="cannot write"), vault.incoming():
        pass
    for place in ("backups", "packages", "incoming"):
        broken = Vault(tmp_path / place)
        save(broken, job())
        (broken.root / place).rename(broken.root / "elsewhere")
        (broken.root / place).write_text("not a folder")
        with pytest.raises(PrerequisiteMissing, match=r"cannot (read|prune)"):
            broken.prune(HOUR, now=TAKEN)


def test_all_is_on_the_disk_before_it_gets_its_name_and_so_is_the_name(vault: Vault) -> None:
    with vault.incoming() as folder:
        (folder / "package").write_bytes(b"zip")
        with recorded_calls() as calls:
            package = vault.keep(URI, folder / "package")
            vault.save(backup(PACKAGED, packages=(package,)))
    # the package; the draft of the document; the document, which the draft becomes
    assert calls == ["fsync", "rename", "fsync", "fsync", "rename", "fsync", "rename", "fsync"]
