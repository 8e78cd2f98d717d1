"""Fleet files that nobody would write: each is one clear error of bounded size, in bounded work."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from rayfleet.errors import FleetFileError, UsageError
from rayfleet.fleet.load import load_fleet
from rayfleet.project import find_project
from tests.unit.fleet.conftest import GOOD, REPOSITORY, Place

MOST_SHOWN = 100_000  # characters of an error
LONG = "x" * 300
NASTY = (
    *('""', "~", "~nosuchuser/x", "~/x", f"a/{LONG}", f"{LONG}/a", "../" * 40, "/", "/dev/null"),
    *(r'"\0"', r'"\e[31mred"', r'"a\nb"', r'"\u202e"', "\u0661\u0662d", "us-east\u0665-b", "1e999"),
    *("[]", "{}", "null", "true", "-1", "0x10", "1_0", ".nan", "2026-01-01", "!!python/object:a b"),
    *('"' + "[" * 2000 + '"', '"' + "{" * 2000 + '"', "'" + LONG * 100 + "'", "[" * 90 + "]" * 90),
    *(
        '"x; touch p"',
        '"ray -v /:/host"',
        '"{state}"',
        '"{region"',
        "&a b",
        "*a",
        "? b",
        "- -",
        "%",
    ),
)


def mutated(text: str, chance: random.Random) -> str:
    """``text`` with a value, a key or a line that does not belong there."""
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    key, colon, value = lines[at].partition(":")
    nasty = chance.choice(NASTY)
    kind = chance.randrange(7)
    if kind <= 2 and colon:
        lines[at] = f"{key}: {nasty}\n"
    elif kind == 3 and colon:
        indent = key[: len(key) - len(key.lstrip())]
        lines[at] = f"{indent}{nasty}:{value}"
    elif kind == 4:
        del lines[at]
    elif kind == 5:
        lines.insert(at, lines[chance.randrange(len(lines))])
    else:
        place = chance.randrange(len(text))
        return text[:place] + nasty + text[place:]
    return "".join(lines)


def shipped() -> Iterator[str]:
    yield GOOD
    for name in ("fleet.yaml", "sandbox.yaml"):
        yield (REPOSITORY / "infra" / name).read_text()


@pytest.mark.parametrize("number", range(3))
def test_a_mutated_file_loads_or_is_one_clear_error(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    chance = random.Random(20_260_101 + number)  # noqa: S311 (the same every time)
    text = list(shipped())[number]
    file, refused = tmp_path / "fleet.yaml", 0
    for _ in range(60):
        hostile = mutated(text, chance)
        if chance.random() < 0.3:
            hostile = mutated(hostile, chance)
        file.write_text(hostile)
        try:
            load_fleet(file, root=REPOSITORY, state=tmp_path / "state")
        except FleetFileError as error:
            assert_readable(error)
            refused += 1
    assert refused > 30


def assert_readable(error: FleetFileError) -> None:
    """Every mistake has its line; a terminal obeys nothing of it, and it has an end."""
    assert all(re.match(r".*fleet\.yaml:[1-9][0-9]*: ", line) for line in error.problems)
    assert 1 <= len(error.problems) <= 100
    assert all(line.isprintable() for line in error.problems)
    assert len(error.text()) < MOST_SHOWN


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"docker/Dockerfile.cluster": f"docker/{LONG}"}, "13: images.cluster.dockerfile: there"),
        ({"[docker]": f"[{LONG}]"}, "14: images.cluster.context.0: there is no"),
        (
            {"order: [us-west4]": f"gates: {{own: {{command: [a/{LONG}]}}}}"},
            "29: rollout.gates.own.command.0: there is no file",
        ),
        (
            {"images:": "outputs: {pins: ~nosuchuser/pins}\nimages:"},
            "9: outputs.pins: there is no user 'nosuchuser' on this machine",
        ),
        ({"images:": 'outputs: {pins: "a\\0b"}\nimages:'}, r"9: outputs.pins: holds the character"),
        (
            {"images:": f"outputs: {{configs: {LONG}}}\nimages:"},
            "9: outputs.configs: no file can be",
        ),
        (
            {"name_prefix: marin-": "ssh: {private_key: ~nosuchuser/key}"},
            "7: defaults.ssh.private_key: '~nosuchuser/key' is somebody else's home",
        ),
        (
            {"name_prefix: marin-": "ssh: {private_key: ~/k%h}"},
            "7: defaults.ssh.private_key: '~/k%h' holds % or \", which mean something to ssh",
        ),
        ({"name_prefix: marin-": 'ssh: {user: ""}'}, "7: defaults.ssh.user: '' is no name"),
        (
            {"secret: RAY_AUTH_TOKEN": 'secret: "x; touch /tmp/p"'},
            "8: defaults.auth.secret: not the name of a secret",
        ),
        ({'"{region}-docker.pkg.dev"': '"{region}.x y"'}, "16: registries.host: "),
        ({"zone: us-east5-b": "zone: us-east\u0665-b"}, "20: clusters.us-east5.zone: "),
        ({"rollout:": '"\\e[31mred": 1\nrollout:'}, r"28: \x1b[31mred: unknown key"),
        ({"  us-west4:\n": "  # \x1b\n  us-west4:\n"}, "23: not YAML: control characters"),
        (
            {"  cluster:\n": '  "a/../b": {}\n  cluster:\n'},
            "10: images.a/../b: 'a/../b' is no name",
        ),
        ({"[docker]": "[docker]\n    base_image: a b"}, "15: images.cluster.base_image: 'a b' is"),
    ],
)
def test_what_no_path_and_no_command_can_hold_is_refused_where_it_stands(
    place: Place, edits: dict[str, str], expected: str
) -> None:
    place.edit(edits)
    assert any(problem.startswith(expected) for problem in place.problems())


def test_a_value_of_megabytes_and_a_file_of_more_are_not_printed(place: Place) -> None:
    for size, expected in ((900_000, "26: clusters.us-west4.tag: 'xxx"), (10_000_000, "1: larger")):
        place.edit({'"20251209"': '"' + "x" * size + '"'})
        (problem,) = place.problems()
        assert problem.startswith(expected)
        assert len(problem) < 1000
    assert "is no image tag" in UsageError(problem).text() or "larger than" in problem


@pytest.mark.parametrize("key", ["fleet", "state"])
@pytest.mark.parametrize("text", ["~nosuchuser/x", f"a/{LONG}", "a\0b"])
def test_a_configured_path_that_cannot_be_is_one_clear_error(
    place: Place, key: str, text: str
) -> None:
    (place.root / "tasks.py").touch()
    with pytest.raises(UsageError, match=rf"the configuration key '{key}' is .* cannot be used"):
        find_project(place.root, **{"fleet": "infra/fleet.yaml", key: text})


def many(count: int) -> dict[str, dict[str, str]]:
    """What there can be a lot of, by what it is."""
    names = [f"name-{number}" for number in range(count)]
    flow = ", ".join(names)
    clusters = "".join(f"  {one}: {{zone: europe-west4-b, bucket: a-{one}}}\n" for one in names)
    return {
        "regions": {"[us-east5, us-west4]": f"[us-east5, us-west4, {flow}]"},
        "repeated regions": {"[us-east5, us-west4]": f"[us-east5, us-west4, {flow}, {flow}]"},
        "unknown clusters in the order": {"order: [us-west4]": f"order: [{flow}]"},
        "unknown keys": {"rollout:": "".join(f"{one}: 1\n" for one in names) + "rollout:"},
        "clusters of no region": {"  us-west4:\n": f"{clusters}  us-west4:\n"},
        "placeholders": {"order: [us-west4]": "order: [" + "'{a}{b}', " * count + "us-west4]"},
        "brackets": {"rollout:": f"jobs: {{infrastructure: ['{'[' * count}']}}\nrollout:"},
    }


def work_of(action: Callable[[], object]) -> int:
    """How many functions, Python's own included, ``action`` calls."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        action()
    except FleetFileError:
        pass
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("what", many(0))
def test_the_work_grows_no_faster_than_the_file(place: Place, what: str) -> None:
    place.edit({})
    place.load()  # what is imported or made once is not counted
    work = []
    for size in (400, 1600):
        place.edit(many(size)[what])
        work.append(work_of(place.load))
    assert work[1] < 5 * work[0]


# What runs inside of one call cannot be counted; it had taken minutes to hours of a processor.
MOST_SECONDS = 30


@pytest.mark.parametrize(("what", "size"), [("brackets", 900_000), ("repeated regions", 30_000)])
def test_no_file_takes_long(place: Place, what: str, size: int) -> None:
    place.edit(many(size)[what])
    code = (
        "import sys, pathlib, resource; from rayfleet.errors import FleetFileError\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({MOST_SECONDS}, {MOST_SECONDS}))\n"
        "from rayfleet.fleet.load import load_fleet\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "try: load_fleet(root / 'infra' / 'fleet.yaml', root=root, state=root / 'state')\n"
        "except FleetFileError as error: print(len(error.text()))\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, place.root],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert int(finished.stdout) < MOST_SHOWN
