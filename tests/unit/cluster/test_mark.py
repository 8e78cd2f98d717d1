"""A head bears one mark: of two operators on two machines, one has it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.mark import Mark, place_mark, read_mark, remove_mark
from rayfleet.errors import Locked, Unreachable
from tests.support.rollout_world import World, WorldShell

ODD = Mark(rollout="R1", operator='o\'hara "$HOME" `x`@laptop', since="2026-11-21 16:30:00 UTC")


@pytest.fixture
def head(tmp_path: Path) -> Any:
    return WorldShell(World(tmp_path / "world"))


def files(head: Any) -> list[str]:
    return sorted(path.name for path in (head.world.home / ".rayfleet").iterdir())


def test_our_own_mark_is_placed_read_and_taken_away(head: Any) -> None:
    assert read_mark(head) is None
    place_mark(head, ODD)
    place_mark(head, Mark(rollout="R1", operator="later", since="later"))
    assert read_mark(head) == ODD
    assert files(head) == ["held.json"]
    remove_mark(head, rollout="R2")
    assert read_mark(head) == ODD
    remove_mark(head, rollout="R1")
    remove_mark(head, rollout="R1")
    assert read_mark(head) is None


def test_of_many_operators_at_once_one_wins(head: Any) -> None:
    def place(number: int) -> str:
        try:
            place_mark(head, Mark(rollout=f"R{number}", operator="me", since="now"))
        except Locked:
            return ""
        return f"R{number}"

    with ThreadPoolExecutor(8) as pool:
        won = [name for name in pool.map(place, range(8)) if name]
    there = read_mark(head)
    assert there is not None
    assert won == [there.rollout]
    assert files(head) == ["held.json"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"rollout": 1}'])
def test_a_damaged_mark_is_somebodys(head: Any, damage: str) -> None:
    folder = head.world.home / ".rayfleet"
    folder.mkdir()
    (folder / "held.json").write_text(damage)
    with pytest.raises(Locked, match="rollout UNKNOWN of somebody"):
        place_mark(head, ODD)


def test_a_head_that_cannot_be_marked_is_an_error(head: Any) -> None:
    (head.world.home / ".rayfleet").write_text("a file")
    with pytest.raises(Unreachable, match="could not be marked"):
        place_mark(head, ODD)
