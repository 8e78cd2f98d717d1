"""Files are replaced whole or not at all, and secrets are never readable to others."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayfleet.errors import Locked, PrerequisiteMissing
from rayfleet.files import ensure_private_folder, write_atomically
from rayfleet.locks import exclusive, file_lock
from rayfleet.waiting import wait_until


def test_a_file_is_replaced_with_its_mode_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / "new" / "secret"
    write_atomically(target, "one", mode=0o600)
    write_atomically(target, b"two", mode=0o600)
    assert target.read_text() == "two"
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(PrerequisiteMissing, match=r"cannot write .*/file/inside"):
        write_atomically(blocked / "inside", "x")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o177])
def test_a_private_folder_is_its_owner_s_alone_whatever_the_umask(
    tmp_path: Path, mask: int
) -> None:
    folder = tmp_path / "private"
    before = os.umask(mask)
    try:
        ensure_private_folder(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o755)
        ensure_private_folder(folder)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_private_folder_that_cannot_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for place in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(PrerequisiteMissing, match="cannot write"):
            ensure_private_folder(place)


def test_one_run_at_a_time_and_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from rayfleet.locks import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[1]), 'thing'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(Locked, match="thing is being changed") as raised, _held(tmp_path):
        pass
    assert raised.value.code == 5
    holder.kill()
    holder.wait(timeout=10)
    holder.stdin.close()
    holder.stdout.close()
    wait_until(lambda: _free(tmp_path), what="the lock", timeout=5)


def test_the_lock_of_a_killed_run_is_had_once_its_last_child_has_let_go(tmp_path: Path) -> None:
    # Between fork and exec a child holds all files of its parent, even one that is dead.
    lock = tmp_path / "locks" / "thing.lock"
    code = (
        "import os, pathlib, subprocess, sys; from rayfleet.locks import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[1]), 'thing'):\n"
        "    files = {os.path.realpath(f'/proc/self/fd/{n}'): int(n)\n"
        "             for n in os.listdir('/proc/self/fd')}\n"
        "    subprocess.Popen(['cat'], pass_fds=[files[os.path.realpath(sys.argv[2])]])\n"
        "    print('held', flush=True); os.kill(os.getpid(), 9)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path, lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin
    assert holder.stdout
    with holder, ThreadPoolExecutor(1) as pool:
        assert holder.stdout.readline() == "held\n"
        holder.wait(timeout=10)
        with pytest.raises(Locked), file_lock(lock, what="thing", timeout=0):
            pass
        rerun = pool.submit(_free, tmp_path)
        holder.stdin.close()
        assert rerun.result(timeout=10)


def _held(state: Path):  # type: ignore[no-untyped-def]
    return exclusive(state, "thing")


def _free(state: Path) -> bool:
    try:
        with _held(state):
            return True
    except Locked:
        return False
