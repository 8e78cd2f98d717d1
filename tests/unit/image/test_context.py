"""What a build sees of a checkout and of the machine."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing, UsageError
from rayfleet.image.build.checkout import Checkout
from rayfleet.image.build.context import MTIME, BuildConfig, exported_context, machine_build_config
from tests.support.publishing import commit, git, write_project

CONFIG = BuildConfig(bundle=b"pem", env="export PIP_INDEX_URL=https://me:secret@index\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_project(tmp_path / "project")
    return tmp_path / "project"


def test_the_context_is_what_git_knows_of_the_named_paths(root: Path) -> None:
    (root / ".gitignore").write_text("*.pyc\n")
    (root / "docker" / "x.pyc").write_text("ignored")
    (root / "docker" / "new name").write_text("untracked")
    (root / "docker" / "Dockerfile").unlink()
    assert Checkout(root=root).files(["docker"]) == ("docker/hello", "docker/new name")


def test_a_path_without_a_file_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="no file in rayfleet"):
        Checkout(root=root).files(["docker", "rayfleet"])


def test_only_changes_inside_the_context_make_it_dirty(root: Path) -> None:
    (root / "notes.txt").write_text("changed, but beside the context")
    assert Checkout(root=root).revision(["docker"]).changed == ()
    (root / "docker" / "hello").write_text("changed")
    (root / "docker" / "ünew\tfile").write_text("untracked")
    changed = Checkout(root=root).revision(["docker"]).changed
    assert set(changed) == {"docker/hello", "docker/ünew\tfile"}


def test_a_staged_rename_and_a_deletion_are_changes(root: Path) -> None:
    git(root, "mv", "docker/hello", "docker/hallo")
    changed = Checkout(root=root).revision(["docker"]).changed
    assert set(changed) == {"docker/hello", "docker/hallo"}


def test_the_revision_names_the_commit(root: Path) -> None:
    (root / "docker" / "hello").write_text("changed")
    head = commit(root, "Second")
    revision = Checkout(root=root).revision(["docker"])
    assert revision.commit == head
    assert head.startswith(revision.short)


@pytest.mark.parametrize("place", ["", "clusters/tools"])
def test_a_copy_is_compared_with_the_commit_wherever_the_checkout_lies(
    tmp_path: Path, place: str
) -> None:
    top = tmp_path / "top"
    write_project(top / place)
    if place:
        shutil.rmtree(top / place / ".git")
        git(top, "init", "--quiet")
        (top / ".gitattributes").write_text("*.txt text eol=crlf\n")
        (top / place / "docker" / "lines.txt").write_text("a\nb\n")
        commit(top, "All")
        (top / place / "docker" / "lines.txt").unlink()
        git(top, "checkout", "--", ".")
    checkout = Checkout(root=top / place)
    assert checkout.prefix == place
    with exported_context(
        checkout.root,
        checkout.files(["docker"]),
        CONFIG,
        folder=tmp_path / "build",
        prefix=checkout.prefix,
    ) as context:
        assert checkout.changed_in(context, ["docker"]) == ()
        # What was edited while it was copied, and undone before git was asked again.
        (context / "docker" / "hello").write_text("jello\n")
        (context / "docker" / "new").write_text("new\n")
        (context / "docker" / "Dockerfile").unlink()
        found = {Path(each).name for each in checkout.changed_in(context, ["docker"])}
    assert found == {"hello", "new", "Dockerfile"}
    assert checkout.revision(["docker"]).changed == ()


def test_a_folder_without_git_or_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git checkout"):
        Checkout(root=tmp_path).revision(["docker"])
    git(tmp_path, "init", "--quiet")
    with pytest.raises(UsageError, match="no commit yet"):
        Checkout(root=tmp_path).revision(["docker"])


def test_the_copy_has_gits_modes_and_one_time(root: Path, tmp_path: Path) -> None:
    (root / "docker" / "run").write_text("#!/bin/sh\n")
    (root / "docker" / "run").chmod(0o700)
    (root / "docker" / "hello").chmod(0o600)
    (root / "docker" / "link").symlink_to("hello")
    files = Checkout(root=root).files(["docker"])
    with exported_context(root, files, CONFIG, folder=tmp_path / "build") as context:
        modes = {name: stat.S_IMODE((context / name).lstat().st_mode) for name in files}
        assert modes["docker/run"] == 0o755
        assert modes["docker/hello"] == 0o644
        assert str((context / "docker" / "link").readlink()) == "hello"
        assert {int(path.lstat().st_mtime) for path in context.rglob("*")} == {MTIME}
        assert not (context / "notes.txt").exists()


def test_the_build_config_is_private_and_goes_away(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    with exported_context(root, ["docker/hello"], CONFIG, folder=folder) as context:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for name in ("env", "ca-certificates.crt"):
            assert stat.S_IMODE((context / "build-config" / name).stat().st_mode) == 0o600
        assert "secret" in (context / "build-config" / "env").read_text()
    assert not folder.exists()
    assert "secret" not in repr(CONFIG)


def test_what_a_killed_run_left_is_removed_first(root: Path, tmp_path: Path) -> None:
    stale = tmp_path / "build" / "context" / "stale"
    stale.parent.mkdir(parents=True)
    stale.write_text("old")
    with exported_context(root, ["docker/hello"], CONFIG, folder=tmp_path / "build") as context:
        assert not (context / "stale").exists()


def test_a_place_that_cannot_be_written_is_a_clear_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PrerequisiteMissing, match="cannot copy the build context"),
        exported_context(root, ["docker/hello"], CONFIG, folder=tmp_path / "file" / "build"),
    ):
        pass


def test_a_context_with_its_own_build_config_is_refused(root: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="build-config"),
        exported_context(root, ["build-config/env"], CONFIG, folder=tmp_path / "build"),
    ):
        pass


def test_the_address_of_a_repository_reaches_the_build_from_the_environment() -> None:
    address = "https://packages.example/apt"
    config = machine_build_config({**os.environ, "GCSFUSE_REPOSITORY": address})
    assert f"GCSFUSE_REPOSITORY={address}" in config.env
