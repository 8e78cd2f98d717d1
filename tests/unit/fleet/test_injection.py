"""What the fleet file says reaches shells as words, whatever characters it is made of.

Every command and every option of Docker that a template makes is read by a real bash that runs
no program: what it would have run is written down, word by word. With a hostile value in place of
a harmless one these words must be the same, but for the value itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from rayfleet.errors import FleetFileError
from rayfleet.fleet.model import Pin
from rayfleet.fleet.render import render_configs
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.unit.fleet.conftest import GOOD, Place

# Where in the file, and a harmless value that is like no other.
VALUES: Mapping[tuple[str, ...], str] = {
    ("project",): "project-one",
    ("defaults", "auth", "secret"): "SECRET_TWO",
    ("defaults", "ssh", "user"): "user-three",
    ("defaults", "ssh", "private_key"): "~/four/key",
    ("defaults", "ssh", "public_key"): "~/five/key.pub",
    ("defaults", "name_prefix"): "prefix-six-",
    ("images", "cluster", "name"): "image_seven",
    ("images", "cluster", "repository"): "repository_eight",
    ("images", "cluster", "base_image"): "base:nine",
    ("registries", "host"): "{region}-ten.example",
    ("clusters", "us-east5", "bucket"): "bucket-eleven",
    ("clusters", "us-east5", "zone"): "us-east5-z",
    ("clusters", "us-east5", "identity"): "identity-thirteen",
    ("clusters", "us-east5", "tag"): "tag_fourteen",
    ("clusters", "us-east5", "ray"): "2.53.fifteen",
    ("clusters", "us-east5", "auth", "secret"): "SECRET_SIXTEEN",
    ("clusters", "us-east5", "ssh", "public_key"): "/seventeen/key.pub",
}
VLLM = {("defaults", "template"): "gcp-vllm.yaml.j2"}
HOME = "/home/somebody"
Words = Mapping[str, list[list[str]]]
PIECES = (
    *(";", "&&", "|", "$(id)", "`id`", "$HOME", "~", "'", '"', "\\", "\n", "\t", " ", "#", "*"),
    *(
        ">/tmp/p",
        "<",
        "(",
        ")",
        "{",
        "}",
        "!",
        "-",
        "--",
        "=",
        ":",
        "/",
        "..",
        "a",
        "b.c",
        "\u0661",
    ),
    *("x; touch p", "ray -v /:/host", "key of mine.pub", "{region}", "{state}", "[", "é", "\x1b"),
)
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)

# Nothing is in its PATH, so that whatever is not built in is told instead of run, with success
# but for mountpoint, so that something is mounted. Globs are off.
LISTENER = """
command_not_found_handle() {
    printf '%s\\0' "$@" > "$PWD/$BASHPID.$SRANDOM"
    [ "$1" != mountpoint ]
}
set -f
PATH=/nonexistent
for command in "$@"; do ( eval "$command" ) < /dev/null > /dev/null 2>&1; done
"""


def words_of(text: str, folder: Path) -> list[list[str]]:
    """What bash would run, sorted: the parts of a pipe begin in any order."""
    config = read_yaml(text)
    docker = config["docker"]
    options = [one for key in docker if key.endswith("run_options") for one in docker[key]]
    commands = [one for key in config if key.endswith("_commands") for one in config[key]]
    folder.mkdir()
    subprocess.run(
        ["bash", "-c", LISTENER, "bash", f"docker run {' '.join(options)}", *commands],
        cwd=folder,
        env={"HOME": HOME, "USER": "somebody"},
        timeout=30,
        check=False,
    )
    calls = []
    for path in folder.iterdir():
        assert re.fullmatch(r"[0-9]+\.[0-9]+", path.name), "a command wrote a file"
        calls.append(path.read_text().removesuffix("\0").split("\0"))
    shutil.rmtree(folder)
    return sorted(calls)


def rendered(place: Place, changes: Mapping[tuple[str, ...], str]) -> dict[str, str]:
    """The configs of a fleet file with other values.

    Raises:
        FleetFileError: it is refused.
    """
    document = read_yaml(GOOD)
    for trail, value in {**VALUES, **changes}.items():
        above = document
        for step in trail[:-1]:
            above = above.setdefault(step, {})
        above[trail[-1]] = value
    place.write(write_yaml(document, allow_unicode=True))
    templates = place.root / "infra" / "templates"
    return render_configs(place.load(), {"cluster": Pin(tag="t")}, templates=templates)


def meant(place: Place, value: str, cluster: str) -> str:
    """What a program should get of a value that was written into the fleet file."""
    value = value.replace("{region}", cluster).replace("{state}", str(place.state))
    return f"{HOME}{value[1:]}" if value.startswith("~/") else value


@pytest.mark.parametrize("template", ["gcp.yaml.j2", "gcp-vllm.yaml.j2"])
def test_the_listener_hears_what_is_harmless(place: Place, tmp_path: Path, template: str) -> None:
    text = rendered(place, {("defaults", "template"): template})["us-east5"]
    heard = words_of(text, tmp_path / "listener")
    assert ["gcloud", "auth", "configure-docker", "--quiet", "us-east5-ten.example"] in heard
    for word in ("--secret=SECRET_SIXTEEN", "/seventeen/key.pub", "BUCKET=bucket-eleven"):
        assert any(word in call for call in heard), word
    assert any("gcsfuse" in call for call in heard) is ("vllm" in template)


@pytest.fixture
def harmless(place: Place, tmp_path: Path) -> Words:
    """What the harmless values come to, by cluster."""
    configs = rendered(place, VLLM)
    return {name: words_of(text, tmp_path / "listener") for name, text in configs.items()}


# Every example writes its own file, so one folder serves them all.
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trail=st.sampled_from(sorted(VALUES)), value=HOSTILE)
@example(("defaults", "auth", "secret"), "x; touch /tmp/p")
@example(("defaults", "ssh", "user"), "ray -v /:/host")
@example(("defaults", "ssh", "user"), "")
@example(("defaults", "ssh", "public_key"), "~/my keys/$(id)/it's.pub")
@example(("clusters", "us-east5", "ssh", "public_key"), "{state}/a b;c.pub")
@example(("registries", "host"), "{region}.example; id")
@example(("registries", "host"), "{region}-{a b}")
@example(("clusters", "us-east5", "zone"), "us-east\u0665-b")
def test_a_hostile_value_is_refused_or_stays_one_word(
    place: Place, tmp_path: Path, harmless: Words, trail: tuple[str, ...], value: str
) -> None:
    try:
        hostile = rendered(place, {**VLLM, trail: value})
    except FleetFileError:
        return
    assume(value)  # a key that is not given has no commands
    for cluster, text in hostile.items():
        old, new = meant(place, VALUES[trail], cluster), meant(place, value, cluster)
        expected = [[word.replace(old, new) for word in call] for call in harmless[cluster]]
        assert words_of(text, tmp_path / "listener") == sorted(expected)
