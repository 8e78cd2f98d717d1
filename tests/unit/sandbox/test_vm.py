"""What is laid into a VM before it starts."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from rayfleet.sandbox.vm import (
    CLUSTER_LABEL,
    SANDBOX_LABEL,
    File,
    labels_of,
    tar_of,
    untar,
    version_at,
)


def test_files_of_ray_are_rays_with_their_folders_and_secrets_are_closed() -> None:
    archive = tar_of(
        [
            File("/home/ray/.ssh/authorized_keys", b"key", mode=0o600, ray=True),
            File("/var/lib/tags.json", b"{}", mode=0o644),
        ],
        now=1.5,
    )
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        seen = {entry.name: (entry.uid, entry.mode, entry.isdir()) for entry in opened}
    assert seen == {
        "home/ray/.ssh": (1000, 0o700, True),
        "home/ray/.ssh/authorized_keys": (1000, 0o600, False),
        "var/lib/tags.json": (0, 0o644, False),
    }


def test_one_file_comes_back_out_of_an_archive() -> None:
    assert untar(tar_of([File("/x", b"content", mode=0o644)], now=1.5)) == b"content"
    assert untar(tar_of([], now=1.5)) == b""


def test_a_file_has_its_time_to_a_fraction_of_a_second() -> None:
    archive = tar_of([File("/x", b"content", mode=0o644)], now=1763760000.123456)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert [entry.mtime for entry in opened] == [1763760000.123456]


def test_labels_say_whose_a_vm_is_and_keep_rays_tags() -> None:
    labels = labels_of("abc123", "us-east5", {"ray-node-type": "head"})
    assert labels[SANDBOX_LABEL] == "abc123"
    assert labels[CLUSTER_LABEL] == "us-east5"
    assert labels["rayfleet.tag.ray-node-type"] == "head"


def test_the_latest_token_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    for name in ("2", "10", "11.disabled"):
        (tmp_path / name).touch()
    assert version_at(tmp_path / "latest") == tmp_path / "10"
    assert version_at(tmp_path / "2") == tmp_path / "2"
    assert version_at(tmp_path / "none" / "latest") == tmp_path / "none" / "latest"
