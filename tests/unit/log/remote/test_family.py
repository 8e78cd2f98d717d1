"""Which files belong together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rayfleet.log.remote.family import Folder, Pattern, folders, generation


@pytest.mark.parametrize(
    ("name", "family", "order"),
    [
        ("monitor.log", "monitor.log", 0),
        ("monitor.log.1", "monitor.log", 1),
        ("monitor.log.12", "monitor.log", 12),
        ("raylet.2.out", "raylet.out", 2),
        ("dashboard_JobHead.3.log", "dashboard_JobHead.log", 3),
        ("noextension", "noextension", 0),
        ("noextension.1", "noextension", 1),
        ("worker-ab12-01000000-653.out", "worker-ab12-01000000-653.out", 0),
        ("python-core-worker-ab12_593.log", "python-core-worker-ab12_593.log", 0),
        # Years, zeros and versions are no generations, nor is what a user calls a job.
        ("trace.2026.log", "trace.2026.log", 0),
        ("part.0.log", "part.0.log", 0),
        ("part.01.log", "part.01.log", 0),
        ("job-driver-model-v1.2.log", "job-driver-model-v1.2.log", 0),
        (".1", ".1", 0),
    ],
)
def test_the_number_of_a_rotated_file_is_no_part_of_its_name(
    name: str, family: str, order: int
) -> None:
    assert generation(name) == (family, order)


def look(folder: Path, *globs: str) -> dict[str, list[str]]:
    found = Folder(str(folder), [Pattern(glob, "some") for glob in globs]).look()
    assert found is not None
    return {name: [Path(m.path).name for m in members] for name, members in found.items()}


def test_a_family_is_listed_from_its_oldest_file_on(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.2", "a.log.10", "b.out", "b.1.out", "c.log", "d.txt"):
        (tmp_path / name).touch()
    assert look(tmp_path, "a.*", "b.out") == {
        "a.log": ["a.log.10", "a.log.2", "a.log.1", "a.log"],
        "b.out": ["b.1.out", "b.out"],
    }


def test_a_rotated_file_can_be_asked_for_by_its_own_name(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.2"):
        (tmp_path / name).touch()
    assert look(tmp_path, "a.log.1") == {"a.log.1": ["a.log.1"]}


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").touch()
    (tmp_path / "a.d").mkdir()
    os.mkfifo(tmp_path / "a.fifo")
    (tmp_path / "a.gone").symlink_to("nowhere")
    (tmp_path / "a.log").touch()
    assert look(tmp_path, "a.*") == {"a.log": ["a.log"]}


def test_what_changes_in_a_folder_is_seen_at_the_next_look(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), [Pattern("*", "some")])
    assert folder.look() == {}
    for number in range(20):
        (tmp_path / f"{number}").touch()
        assert len(folder.look() or {}) == number + 1
    long_ago = (1_600_000_000, 1_600_000_000)
    os.utime(tmp_path, long_ago)
    assert len(folder.look() or {}) == 20
    # Nothing is listed again while the folder's own time stands still, but sizes are new.
    (tmp_path / "0").write_text("grown")
    (tmp_path / "late").touch()
    os.utime(tmp_path, long_ago)
    found = folder.look() or {}
    assert (found["0"][0].size, "late" in found) == (5, False)
    (tmp_path / "later").touch()
    assert {"late", "later"} <= (folder.look() or {}).keys()


def test_the_first_pattern_names_the_role(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), [Pattern("monitor.*", "autoscaler"), Pattern("*", "all")])
    assert (folder.role("monitor.log"), folder.role("raylet.out")) == ("autoscaler", "all")


def test_globs_of_folders_are_looked_up_and_others_may_come_later(tmp_path: Path) -> None:
    for name in ("one/logs", "two/logs", "three"):
        (tmp_path / name).mkdir(parents=True)
    patterns = [Pattern("*/logs/x", "a"), Pattern("later/y", "b"), Pattern("z", "c")]
    patterns.append(Pattern("/var/log/syslog", "d"))
    found = folders(str(tmp_path), patterns, absolute=False)
    relative = {str(Path(path).relative_to(tmp_path)) for path in found}
    assert relative == {"one/logs", "two/logs", "three/logs", "later", "."}
    assert list(folders(str(tmp_path), patterns, absolute=True)) == ["/var/log"]
