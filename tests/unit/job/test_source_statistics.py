"""The example job without a cluster: counting, skipping, and surviving a bad file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.jobs.source_statistics import (
    Counts,
    Outcome,
    arguments,
    count,
    count_file,
    package_folder,
    source_files,
    summary,
)

SOURCE = b'"""Two  words."""\n\nasync def f():\n    def g(): ...\n    return g\nx = "\xc3\xa9"'


def test_counts_are_those_of_wc(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(SOURCE)
    counted = subprocess.run(
        ["wc", "-lwc", str(tmp_path / "x.py")], capture_output=True, text=True, check=True
    ).stdout.split()[:3]
    found = count(SOURCE)
    assert [str(found.lines), str(found.words), str(found.bytes)] == counted
    assert found.functions == 2


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "site" / "counted_example"
    (folder / "sub").mkdir(parents=True)
    (folder / "__init__.py").write_bytes(b"x = 1\n")
    (folder / "sub" / "bad.py").write_bytes(b"def broken(:\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder.name


def test_a_file_is_counted_once_and_then_skipped(package: str, tmp_path: Path) -> None:
    first = count_file(package, "__init__.py", tmp_path / "out")
    second = count_file(package, "__init__.py", tmp_path / "out")
    assert (first.state, second.state) == ("done", "skipped")
    assert first.counts == second.counts == Counts(lines=1, words=3, bytes=6)
    assert [path.name for path in (tmp_path / "out" / package).iterdir()] == ["__init__.py.json"]


def test_an_output_that_cannot_be_read_is_made_again(package: str, tmp_path: Path) -> None:
    output = tmp_path / "out" / package / "__init__.py.json"
    output.parent.mkdir(parents=True)
    output.write_text('{"lines": 1')
    assert count_file(package, "__init__.py", tmp_path / "out").state == "done"
    assert '"lines": 1' in output.read_text()


def test_a_file_that_fails_is_an_outcome_and_leaves_no_output(package: str, tmp_path: Path) -> None:
    outcome = count_file(package, "sub/bad.py", tmp_path / "out")
    assert outcome.state == "failed"
    assert "SyntaxError" in outcome.error
    assert not (tmp_path / "out").exists()


def test_the_summary_adds_up_what_was_done_and_what_was_skipped() -> None:
    counts = Counts(lines=1, words=2, bytes=3, functions=4)
    found = summary(
        [
            Outcome(file="a", state="done", counts=counts, node="n2"),
            Outcome(file="b", state="skipped", counts=counts),
            Outcome(file="c", state="failed", error="x", node="n1"),
        ]
    )
    assert found == {
        "files": 3,
        "done": 1,
        "skipped": 1,
        "failed": 1,
        "lines": 2,
        "words": 4,
        "bytes": 6,
        "functions": 8,
        "nodes": ["n1", "n2"],
    }


def test_files_come_in_order_and_up_to_the_limit(package: str) -> None:
    folder = package_folder(package)
    assert source_files(folder) == ["__init__.py", "sub/bad.py"]
    assert source_files(folder, 1) == ["__init__.py"]


def test_the_output_is_under_the_bucket_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_BUCKET", "/mnt/bucket")
    assert arguments([]).output == "/mnt/bucket/source_statistics"


@pytest.mark.parametrize("argv", [[], ["--output", "gs://b/x"], ["--output", "x", "--limit", "0"]])
def test_bad_arguments_exit_with_2(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLUSTER_BUCKET", raising=False)
    with pytest.raises(SystemExit) as caught:
        arguments(argv)
    assert caught.value.code == 2


def test_reading_the_script_needs_no_ray() -> None:
    code = "import sys; import scripts.jobs.source_statistics; sys.exit('ray' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
