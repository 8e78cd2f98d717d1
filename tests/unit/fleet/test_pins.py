"""The pin file: what LATEST is, what it was, and what cannot be in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from rayfleet.errors import Locked, UsageError
from rayfleet.fleet.model import Pin
from rayfleet.fleet.pins import read_histories, read_pins, write_pin
from tests.support.quick_yaml import read_yaml

ONE = Pin(tag="20251209", digest=f"sha256:{'1' * 64}", published="2025-12-09T00:00:00Z", commit="a")
TWO = Pin(tag="12e4567", digest=f"sha256:{'2' * 64}", published="2025-12-10T00:00:00Z", commit="b")


def test_a_missing_file_has_no_pins(tmp_path: Path) -> None:
    assert read_pins(tmp_path / "none.yaml") == {}


def test_a_pin_comes_back_as_it_was_and_the_one_before_is_the_rollback_target(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deep" / "pins.yaml"
    assert write_pin(path, "cluster", ONE)
    assert write_pin(path, "vllm", TWO)
    assert write_pin(path, "cluster", TWO)
    assert read_pins(path) == {"cluster": TWO, "vllm": TWO}
    assert read_histories(path)["cluster"].previous == ONE
    assert read_histories(path)["vllm"].previous is None
    assert [item.name for item in path.parent.iterdir()] == ["pins.yaml"]


def test_pinning_the_same_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pins.yaml"
    write_pin(path, "cluster", ONE)
    write_pin(path, "cluster", TWO)
    before = path.stat().st_ino, path.read_bytes()
    later = Pin(tag=TWO.tag, digest=TWO.digest, published="2026-01-01T00:00:00Z", commit="c")
    assert not write_pin(path, "cluster", later)
    assert (path.stat().st_ino, path.read_bytes()) == before
    assert read_histories(path)["cluster"].previous == ONE


def test_another_tag_of_the_same_digest_keeps_the_rollback_target(tmp_path: Path) -> None:
    path = tmp_path / "pins.yaml"
    write_pin(path, "cluster", ONE)
    write_pin(path, "cluster", TWO)
    write_pin(path, "cluster", Pin(tag="20251211", digest=TWO.digest))
    assert read_pins(path)["cluster"].tag == "20251211"
    assert read_histories(path)["cluster"].previous == ONE


def test_every_yaml_reader_takes_a_tag_for_text(tmp_path: Path) -> None:
    write_pin(tmp_path / "pins.yaml", "cluster", TWO)
    assert '"12e4567"' in (tmp_path / "pins.yaml").read_text()


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pins.yaml"
    families = [f"family{number}" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda family: write_pin(path, family, ONE), families))
    assert sorted(read_pins(path)) == sorted(families)


def test_a_file_that_another_run_holds_is_an_error_in_time(tmp_path: Path) -> None:
    path = tmp_path / "pins.yaml"
    with FileLock(tmp_path / ".pins.yaml.guard"), pytest.raises(Locked, match="another run"):
        write_pin(path, "cluster", ONE, timeout=0.05)
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: [", "while parsing"),
        (b"\xff", "decode"),
        (b"- a", "not a mapping"),
        (b"cluster: {tag: x}", "cluster must hold current and previous"),
        (b"cluster: {previous: {tag: x}}", "cluster has no current pin"),
        (b"cluster: {current: {tag: 1}}", "not text; quote it"),
        (b"cluster: {current: {tag: ''}}", "no usable tag"),
        (b"cluster: {current: {tag: a, ray: 'new'}}", "which is no version"),
        (b"cluster: {current: {digest: x}}", "no usable tag"),
        (b"cluster: {current: {tag: x, digest: 'sha256:12'}}", "is not sha256:<64 hex>"),
        (b"cluster: {current: {tag: x, more: y}}", "only"),
    ],
)
def test_a_broken_file_is_refused_and_not_overwritten(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "pins.yaml"
    path.write_bytes(content)
    for attempt in (lambda: read_pins(path), lambda: write_pin(path, "cluster", ONE)):
        with pytest.raises(UsageError, match="is broken") as caught:
            attempt()
        assert expected in caught.value.why
    assert path.read_bytes() == content


def test_the_file_is_plain_yaml_with_a_banner(tmp_path: Path) -> None:
    path = tmp_path / "pins.yaml"
    write_pin(path, "cluster", Pin(tag="x"))
    assert path.read_text().startswith("# Written by `invoke cluster-docker`")
    assert read_yaml(path.read_text()) == {"cluster": {"current": {"tag": "x"}}}
