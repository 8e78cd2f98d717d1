"""Configs with any value in any place: findings, never a traceback, and in a moment."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayfleet.fleet.lint.finding import Finding
from rayfleet.fleet.lint.run import lint_files, lint_text
from tests.support.depth import series
from tests.unit.fleet.lint.examples import GOOD
from tests.unit.fleet.lint.test_kuberay import GOOD as RESOURCE

ANYTHING: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 10**18, -0.5, float("inf"), float("nan"), "", " ", "~", "::"),
    *(
        "a:1",
        "\t",
        "x" * 300,
        "\u2028é\ud7ff",
        "~nosuchuser/key",
        "/\U0001f600",
        "$HOME",
        "[",
        "{}",
    ),
    *("--restart", "-e", "--shm-size=", "--shm-size=99999999999999999999tb", "RAY_AUTH_MODE="),
    *("ray start --dashboard-host", "2.x.0", "1e999", "0x10", "2024-01-01"),
    *([], {}, [[]], [{}], {"": ""}, {"a": {"b": [None]}}, [None], ["-e"], [1], {"type": []}),
    *({"image": 5}, {"containers": {}}, {"spec": []}, [{"name": 1}], {"min_workers": "x"}),
)
SECONDS = 20.0
"""Of the processor; what grows with the square takes many minutes."""


def _places(value: object, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield trail
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*trail, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*trail, index))


def _put(tree: Any, trail: tuple[Any, ...], value: object) -> Any:
    if not trail:
        return value
    tree[trail[0]] = _put(tree[trail[0]], trail[1:], value)
    return tree


def _written(tree: object) -> str:
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)


def _whole(found: list[Finding]) -> None:
    for one in found:
        assert one.level in ("error", "warning")
        assert one.number >= 1
        assert one.text
        assert all(letter.isprintable() for letter in one.line)
        assert len(one.line) < 2000


@pytest.mark.parametrize("name", [*GOOD, "kuberay"])
def test_any_value_in_any_place(name: str, tmp_path: Path) -> None:
    base = yaml.load(GOOD.get(name, RESOURCE), Loader=yaml.CSafeLoader)
    path = tmp_path / "config.yaml"
    choices = [(trail, value) for trail in _places(base) for value in ANYTHING]
    random.Random(13).shuffle(choices)  # noqa: S311
    for trail, value in series(choices, few=120):
        path.write_text(_written(_put(copy.deepcopy(base), trail, value)))
        _whole(list(lint_files([path])))


def _damages(text: str, dice: random.Random) -> str:
    letters = list(text)
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(len(letters))
        what = dice.choice(
            ["", "\n", "  ", ":", "- ", "[", "}", "&a ", "*a", "!!int ", '"', "<<: "]
        )
        letters[place : place + dice.randint(0, 3)] = what
    return "".join(letters)


@pytest.mark.parametrize("name", [*GOOD, "kuberay"])
def test_any_damage_to_the_text(name: str, tmp_path: Path) -> None:
    dice = random.Random(34)  # noqa: S311
    path = tmp_path / "config.yaml"
    for _ in series(range(5000), few=80):
        path.write_text(_damages(GOOD.get(name, RESOURCE), dice))
        _whole(list(lint_files([path])))


LONG: dict[str, Callable[[], str]] = {
    "brackets": lambda: "[" * 90 + "x" * 300_000,
    "a login": lambda: "docker login " * 23_000,
    "an install": lambda: "pip install x " * 20_000,
    "a token's head": lambda: "-eyJabcdefgh" * 23_000,
    "sk-": lambda: "sk-" * 100_000,
    "a word": lambda: "a" * 300_000,
    "underscores": lambda: "_" * 300_000,
    "a URL": lambda: "://a" * 66_000,
    "options": lambda: "--a-" * 66_000,
    "blanks": lambda: "ray" + " " * 300_000,
    "dashes": lambda: "-----BEGIN " * 26_000,
    "a host": lambda: "--dashboard-host " * 16_000,
    "bearers": lambda: "bearer " * 40_000,
    "numbers": lambda: "1" * 300_000,
    "sizes": lambda: "--shm-size=1 " * 23_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_takes_no_longer_than_its_length(name: str) -> None:
    text = _written(
        {
            **yaml.load(GOOD["aws"], Loader=yaml.CSafeLoader),
            "head_start_ray_commands": [LONG[name]()],
        }
    )
    begun = time.process_time()
    _whole(lint_text(text, shown="config.yaml"))
    assert time.process_time() - begun < SECONDS
