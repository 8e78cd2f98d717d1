"""Files that may be anything: one clear error with its line, never a traceback."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rayfleet.fleet.document import MOST_BYTES
from rayfleet.fleet.lint.finding import Finding
from rayfleet.fleet.lint.run import lint_files
from tests.unit.fleet.conftest import Place
from tests.unit.fleet.lint.examples import GOOD, lint, marked, spoiled

BAD: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 1, "the file is empty"),
    "comments": (b"# a\n---\n---\n", 1, "the file is empty"),
    "a list": (b"\n- a\n", 2, "not a mapping"),
    "a word": (b"a\n", 1, "not a mapping"),
    "a program": (b"a: 1\n\x7fELF\xd0\xff", 2, "not UTF-8 text (byte 0xd0)"),
    "half a text": (b"cluster_name: x\nprovider: {type: aws\n", 3, "not YAML"),
    "a control character": (b"a: 1\nb: 2\nc: \x1b[31m\n", 3, "not YAML"),
    "a tab": (b"a:\n\tb: 1\n", 2, "not YAML"),
    "many brackets": (b"a: " + b"[" * 100_000, 1, "nested too deeply"),
    "a large file": (b"# " + b"x" * MOST_BYTES, 1, "larger than 1 MB"),
    "an alias of nothing": (b"cluster_name: *a\n", 1, "not YAML"),
    "aliases of aliases": (
        b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + b"".join(
            b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
        ),
        1,
        "stand for more than",
    ),
    "merges of merges": (
        b"a0: &a0 {x: 1}\n"
        + b"".join(b"a%d: &a%d {<<: *a%d}\n" % (n, n, n - 1) for n in range(1, 3000)),
        1,
        "stand for more than",
    ),
    "another YAML file": (b"global:\n  scrape_interval: 15s\n", 1, "no cluster config of Ray"),
    "another resource": (b"apiVersion: v1\nkind: Pod\n", 1, "no cluster config of Ray"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_error_with_its_line(name: str, tmp_path: Path) -> None:
    content, line, part = BAD[name]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    (found,) = lint_files([path])
    assert (found.level, found.number) == ("error", line)
    assert part in found.text
    assert len(found.line) < 300 + len(str(path))


@pytest.mark.parametrize("name", ["no\0name", "x" * 300, "none.yaml", "~nosuchuser/a.yaml", "."])
def test_what_cannot_be_opened_is_one_error(name: str, tmp_path: Path) -> None:
    (found,) = lint_files([tmp_path / name])
    assert "cannot be read" in found.text


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\udcff.yaml"
    (found,) = lint_files([path])
    assert "\x1b" not in found.line
    found.line.encode()


def test_a_pipe_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(GOOD["aws"],))
    writer.start()
    assert lint_files([path]) == ()
    writer.join(timeout=10)


def test_a_fleet_file_gets_the_command_for_it(tmp_path: Path) -> None:
    text = "# ours\nproject: my-project\nclusters: {}\n"
    (found,) = lint(tmp_path, text, "my fleet.yaml")
    assert f"run: INVOKE_FLEET='{tmp_path}/my fleet.yaml' invoke fleet.lint" in found.text


def test_every_file_is_looked_at(tmp_path: Path) -> None:
    names = ["none.yaml", "good.yaml", "spoiled.yaml"]
    (tmp_path / "good.yaml").write_text(GOOD["aws"])
    (tmp_path / "spoiled.yaml").write_text(spoiled("gcp", {"us-west4-a": "us-west1-a"}))
    found = lint_files([tmp_path / name for name in names])
    assert [Path(one.file).name for one in found] == ["none.yaml", "spoiled.yaml"]


def test_anchors_aliases_and_merge_keys_are_read(tmp_path: Path) -> None:
    edits = {
        "  leader:\n": "  leader: &type\n",
        "  helper:\n    min_workers: 1\n    max_workers: 3\n": "  helper:\n    <<: *type\n"
        "    min_workers: 5 #!\n    max_workers: 4\n",
        "max_workers: 3\nprov": "max_workers: 9\nprov",
    }
    text = spoiled("aws", edits)
    (found,) = lint(tmp_path, text)
    assert (found.rule, [found.number]) == ("min-above-max", marked(text))


def test_an_alias_of_itself_is_an_error(tmp_path: Path) -> None:
    found = lint(tmp_path, f"{GOOD['aws']}metadata: &a\n  a: *a #!\n")
    assert [(one.rule, one.level) for one in found] == [("yaml", "error")]


def test_a_number_without_digits_is_an_error(tmp_path: Path, place: Place) -> None:
    found = lint(
        tmp_path, spoiled("aws", {"max_workers: 3\nprov": "max_workers: !!int '' #!\nprov"})
    )
    assert {one.rule for one in found} == {"yaml", "wrong-type"}
    place.edit({"{min: 1, max: 4}": "{min: 1, max: !!int ''}"})
    assert any("is no int; quote it" in problem for problem in place.problems())


def test_a_key_twice_is_an_error(tmp_path: Path) -> None:
    text = spoiled("aws", {"max_workers: 3\nprov": "max_workers: 3\nmax_workers: 4 #!\nprov"})
    (found,) = lint(tmp_path, text)
    assert [found.number] == marked(text)
    assert "written twice (first in line 2)" in found.text


def test_a_second_document_is_an_error(tmp_path: Path) -> None:
    text = f"{GOOD['aws']}---\ncluster_name: another #!\n"
    (found,) = lint(tmp_path, text)
    assert [found.number] == marked(text)


def test_two_clusters_of_one_name(tmp_path: Path) -> None:
    found = _pair(tmp_path, GOOD["azure"], spoiled("azure", {"farm\n  sub": "other\n  sub"}))
    assert found == []
    found = _pair(tmp_path, GOOD["aws"], spoiled("aws", {"CPU: 2": "CPU: 8"}))
    assert [(one.rule, one.number) for one in found] == [("cluster-name-shared", 1)]
    assert "a.yaml has the same name" in found[0].text


def test_two_clusters_of_one_resource_group(tmp_path: Path) -> None:
    found = _pair(tmp_path, GOOD["azure"], spoiled("azure", {"azure-farm": "azure-field"}))
    assert [(one.rule, one.number) for one in found] == [("resource-group-shared", 6)]


def test_two_clusters_on_one_machine(tmp_path: Path) -> None:
    text = GOOD["local"].replace("10.0.0.1", "10.0.0.9").replace("home-farm", "lab-farm")
    found = _pair(tmp_path, GOOD["local"], text)
    assert [one.rule for one in found] == ["host-shared", "host-shared"]


def test_the_same_file_twice_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD["aws"])
    assert lint_files([tmp_path / "a.yaml"] * 2) == ()


def _pair(folder: Path, first: str, second: str) -> list[Finding]:
    paths = [folder / "a.yaml", folder / "b.yaml"]
    for path, text in zip(paths, (first, second), strict=True):
        path.write_text(text)
    return list(lint_files(paths))
