"""Working directories as zips."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from rayfleet.errors import ToolFailed, UsageError
from rayfleet.job.package import Package, files_of, packaged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "lib").mkdir(parents=True)
    (root / "main.py").write_text("print(1)\n")
    (root / "lib" / "tool.sh").write_text("#!/bin/sh\n")
    (root / "lib" / "tool.sh").chmod(0o755)
    return root


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def pack(folder: Path) -> tuple[Package, bytes]:
    with packaged(folder) as package:
        return package, package.path.read_bytes()


def test_equal_folders_make_equal_zips(folder: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    (twin / "lib").mkdir(parents=True)
    for name in ("lib/tool.sh", "main.py"):
        (twin / name).write_bytes((folder / name).read_bytes())
        (twin / name).chmod((folder / name).stat().st_mode)
        os.utime(twin / name, (1, 1))
    first, first_bytes = pack(folder)
    second, second_bytes = pack(twin)
    assert first.name == second.name
    assert first_bytes == second_bytes
    assert re.fullmatch(r"_ray_pkg_[0-9a-f]{32}\.zip", first.name)


@pytest.mark.parametrize("change", ["content", "mode", "name"])
def test_any_change_makes_another_package(folder: Path, change: str) -> None:
    before, _ = pack(folder)
    if change == "content":
        (folder / "main.py").write_text("print(2)\n")
    elif change == "mode":
        (folder / "main.py").chmod(0o700)
    else:
        (folder / "main.py").rename(folder / "main2.py")
    assert pack(folder)[0].name != before.name


def test_the_zip_keeps_modes_and_is_gone_after_the_block(folder: Path) -> None:
    with packaged(folder) as package, zipfile.ZipFile(package.path) as archive:
        assert archive.testzip() is None
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    assert modes["lib/tool.sh"] == 0o755
    assert package.files == 2
    assert not package.path.exists()


def test_environments_and_caches_are_left_out(folder: Path) -> None:
    for name in (".venv", "venv", "lib/__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x").touch()
    assert files_of(folder) == ("lib/tool.sh", "main.py")


def test_a_checkout_gives_what_git_does_not_ignore(folder: Path) -> None:
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.log\n/data\n")
    (folder / "run.log").touch()
    (folder / "data").mkdir()
    (folder / "data" / "big").touch()
    (folder / "gone.py").touch()
    git(folder, "add", ".")
    (folder / "gone.py").unlink()
    (folder / "new ü.py").touch()
    assert files_of(folder) == (".gitignore", "lib/tool.sh", "main.py", "new ü.py")
    assert files_of(folder / "lib") == ("tool.sh",)
    assert files_of(folder / "data") == ("big",), "a folder that was named is meant"


def test_a_checkout_that_git_cannot_read_is_an_error(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: /nowhere\n")
    with pytest.raises(ToolFailed, match="git ls-files failed in"):
        files_of(folder)


@pytest.mark.parametrize("checkout", [True, False])
def test_links_become_what_they_lead_to(folder: Path, tmp_path: Path, checkout: bool) -> None:
    if checkout:
        git(folder, "init", "-q")
    outside = tmp_path / "shared"
    outside.mkdir()
    (outside / "data.txt").write_text("data")
    (folder / "shared").symlink_to(outside)
    (folder / "copy.txt").symlink_to(outside / "data.txt")
    (folder / "dead").symlink_to(tmp_path / "nothing")
    (folder / "lib" / "up").symlink_to(folder)
    with packaged(folder) as package, zipfile.ZipFile(package.path) as archive:
        assert archive.namelist() == ["copy.txt", "lib/tool.sh", "main.py", "shared/data.txt"]
        assert archive.read("shared/data.txt") == b"data"


def test_too_large_a_folder_is_refused_with_its_largest_files(folder: Path) -> None:
    (folder / "model.bin").write_bytes(os.urandom(200_000))
    with (
        pytest.raises(UsageError, match=r"up to 0\.1 MiB; the largest files are model\.bin"),
        packaged(folder, limit=100_000),
    ):
        pass


@pytest.mark.parametrize("name", ["nothing", "work/main.py", "empty"])
def test_a_folder_without_files_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        files_of(tmp_path / name)
