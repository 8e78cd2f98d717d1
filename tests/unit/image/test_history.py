"""What LATEST was, from the pin file and from git."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.console import Console
from rayfleet.errors import UsageError
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.pins import PinHistory, write_pin
from rayfleet.image.history import (
    Entry,
    ImageHistory,
    Record,
    merge_entries,
    minute,
    read_history,
    split_patch,
)
from tests.unit.image.test_references import fleet_of

RECORD = Record(commit="c" * 40, author="Ada", at="2025-12-09T01:00:00+01:00", subject="Pin")


def pin(number: int) -> Pin:
    """The pin of the build ``number``."""
    return Pin(
        tag=f"{number:07}",
        digest=f"sha256:{number:064}",
        published=f"2025-12-0{number}T00:00:00+00:00",
        commit=f"{number:040}",
    )


class Repository:
    """A git repository with a pin file in a folder of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fleet: Fleet = fleet_of(root / "infra")
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, **environment: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return subprocess.run(
            ["git", "-C", self.root, *identity, *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=env | environment,
        ).stdout.strip()

    def pin(self, family: str, number: int, *, author: str = "Ada", commit: bool = True) -> str:
        """Pin a build and commit that; returns the commit."""
        write_pin(self.fleet.outputs.pins, family, pin(number))
        if not commit:
            return ""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", f"Pin {number}", GIT_AUTHOR_NAME=author)
        return self.git("rev-parse", "HEAD")

    def history(self, family: str = "cluster") -> ImageHistory:
        return read_history(self.fleet, family)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_every_pin_is_listed_with_who_committed_it_newest_first(repository: Repository) -> None:
    first = repository.pin("cluster", 1, author="Grace")
    repository.pin("vllm", 9)
    (repository.root / "README").write_text("not a pin\n")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "Other things")
    second = repository.pin("cluster", 2)

    newer, older = repository.history().entries

    assert (newer.pin, newer.mark) == (pin(2), "current")
    assert (older.pin, older.mark) == (pin(1), "previous")
    assert newer.record is not None
    assert older.record is not None
    assert (newer.record.commit, newer.record.author) == (second, "Ada")
    assert (older.record.commit, older.record.author) == (first, "Grace")
    assert older.record.subject == "Pin 1"
    assert repository.history().note == ""


def test_what_is_not_committed_stands_on_top_and_says_so(repository: Repository) -> None:
    repository.pin("cluster", 1)
    repository.pin("cluster", 2, commit=False)
    repository.pin("cluster", 3, commit=False)

    shown = [
        (each.pin, each.mark, each.record is not None) for each in repository.history().entries
    ]

    assert shown == [
        (pin(3), "current", False),
        (pin(2), "previous", False),
        (pin(1), "", True),
    ]


def test_a_rollback_is_an_entry_of_its_own(repository: Repository) -> None:
    for number in (1, 2, 1):
        repository.pin("cluster", number)
    entries = repository.history().entries
    assert [each.pin for each in entries] == [pin(1), pin(2), pin(1)]
    assert [each.mark for each in entries] == ["current", "previous", ""]


def test_a_merge_pins_nothing_that_its_branches_have_pinned(repository: Repository) -> None:
    repository.pin("cluster", 1)
    repository.git("checkout", "--quiet", "-b", "side")
    repository.pin("cluster", 2)
    repository.git("checkout", "--quiet", "main")
    repository.pin("vllm", 9)
    repository.git("merge", "--quiet", "--no-commit", "--strategy=ours", "side")
    repository.pin("cluster", 2)

    assert [each.pin for each in repository.history().entries] == [pin(2), pin(1)]
    assert [each.pin for each in repository.history("vllm").entries] == [pin(9)]


def test_a_version_that_cannot_be_read_pins_nothing(repository: Repository) -> None:
    repository.pin("cluster", 1)
    path = repository.fleet.outputs.pins
    kept = path.read_text()
    path.write_text("<<<<<<< a conflict\n")
    repository.git("commit", "--quiet", "--all", "--message", "Oops")
    path.write_text(kept)
    repository.pin("cluster", 2)
    assert [each.pin.tag for each in repository.history().entries] == ["0000002", "0000001"]


@pytest.mark.parametrize(
    "setting",
    [
        ("diff.noprefix", "true"),
        ("diff.external", "false"),
        ("color.ui", "always"),
        ("log.showRoot", "false"),
        ("log.showSignature", "true"),
        ("diff.context", "0"),
    ],
)
def test_the_user_s_own_settings_of_git_change_nothing(
    repository: Repository, setting: tuple[str, str]
) -> None:
    repository.git("config", *setting)
    (repository.root / ".gitattributes").write_text("*.yaml -diff\n")
    for number in (1, 2):
        repository.pin("cluster", number)
    assert [each.pin for each in repository.history().entries] == [pin(2), pin(1)]


def test_pins_beside_git_are_the_two_of_the_file(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    for number in (1, 2, 3):
        write_pin(fleet.outputs.pins, "cluster", pin(number))
    history = read_history(fleet, "cluster")
    assert [(each.pin, each.mark) for each in history.entries] == [
        (pin(3), "current"),
        (pin(2), "previous"),
    ]
    assert "only the current and the previous pin are known" in history.note


def test_pins_that_git_ignores_are_the_two_of_the_file(repository: Repository) -> None:
    (repository.root / ".gitignore").write_text("infra\n")
    repository.pin("cluster", 1)
    history = repository.history()
    assert [each.pin for each in history.entries] == [pin(1)]
    assert "only the current and the previous pin are known" in history.note


def test_a_shallow_checkout_is_said(repository: Repository, tmp_path: Path) -> None:
    for number in (1, 2):
        repository.pin("cluster", number)
    copy = tmp_path / "copy"
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.root}", str(copy))
    assert "shallow" in read_history(fleet_of(copy / "infra"), "cluster").note


def test_nothing_was_ever_pinned(repository: Repository) -> None:
    assert repository.history().entries == ()
    console = Console(out=io.StringIO(), err=io.StringIO())
    repository.history().show(console, limit=5, as_json=False)
    assert isinstance(console.err, io.StringIO)
    assert "cluster was never pinned" in console.err.getvalue()
    assert "invoke cluster-docker" in console.err.getvalue()
    with pytest.raises(UsageError, match="no image 'other'"):
        repository.history("other")


def test_an_earlier_pin_is_found_by_tag_digest_and_the_beginning_of_one() -> None:
    history = ImageHistory(
        family="cluster", entries=tuple(Entry(pin=pin(n), record=RECORD) for n in (3, 2, 1))
    )
    assert history.find("0000002") == pin(2)
    assert history.find(pin(1).digest) == pin(1)
    assert ImageHistory(family="cluster", entries=(Entry(pin=pin(1)),)).find(
        "sha256:00000000"
    ) == pin(1)
    with pytest.raises(UsageError, match="3 known digests"):
        history.find("sha256:00000000")
    with pytest.raises(UsageError, match="7 was never a pin of 'cluster'") as refused:
        history.find("7")
    assert refused.value.why == "the latest pins are 0000003, 0000002, 0000001"


def test_the_newest_are_shown_and_the_rest_is_counted() -> None:
    history = ImageHistory(
        family="cluster", entries=tuple(Entry(pin=pin(n), record=RECORD) for n in (3, 2, 1))
    )
    console = Console(out=io.StringIO(), err=io.StringIO())
    assert isinstance(console.out, io.StringIO)
    assert isinstance(console.err, io.StringIO)
    history.show(console, limit=2, as_json=True)
    assert [each["tag"] for each in json.loads(console.out.getvalue())] == ["0000003", "0000002"]
    assert console.err.getvalue() == "1 more with --limit 3\n"

    console = Console(out=io.StringIO(), err=io.StringIO())
    history.show(console, limit=3, as_json=False)
    assert isinstance(console.out, io.StringIO)
    assert "2025-12-09 00:00Z" in console.out.getvalue()


def test_times_are_shown_in_utc_and_other_texts_as_they_are() -> None:
    assert minute("2025-12-09T01:30:59+01:00") == "2025-12-09 00:30Z"
    assert minute("yesterday") == "yesterday"
    assert minute("") == ""


LINES = st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=5))


@given(before=LINES, after=LINES)
def test_a_patch_with_the_whole_file_is_both_versions(before: list[str], after: list[str]) -> None:
    patch = "\n".join(
        [
            "diff --git a/x b/x",
            "--- a/x",
            "+++ b/x",
            "@@ -1 +1 @@",
            *(f"-{line}" for line in before),
            *(f"+{line}" for line in after),
            " the end",
        ]
    )
    assert split_patch(patch) == ("\n".join([*before, "the end"]), "\n".join([*after, "the end"]))


@given(
    numbers=st.lists(st.integers(1, 4), max_size=5), now=st.integers(1, 4), was=st.integers(1, 4)
)
def test_exactly_one_pin_is_current_and_at_most_one_previous(
    numbers: list[int], now: int, was: int
) -> None:
    recorded = [Entry(pin=pin(number), record=RECORD) for number in numbers]
    merged = merge_entries(PinHistory(current=pin(now), previous=pin(was)), recorded)
    assert [each.pin for each in merged if each.current] == [pin(now)]
    assert [each.pin for each in merged if each.previous] == [pin(was)]
    assert merged[0].current
    kept = [each.pin for each in merged if each.record is not None]
    assert kept == [each.pin for each in recorded]
