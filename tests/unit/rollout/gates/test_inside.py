"""What a head prints about itself."""

from __future__ import annotations

import pytest

from rayfleet.rollout.gates.inside import Inside, parse_inside
from tests.unit.rollout.gates.fakes import SESSION

OTHER = "/opt/ray/gcs_server --session-name=session_2026-11-21_16-37-43_933460_7 --port=1"
MINE = f"/opt/ray/gcs_server --gcs_server_port=6379 --session-name={SESSION}"


def test_everything_is_read_between_greetings_and_other_noise() -> None:
    text = f"""\
Welcome! rayfleet-gate image x
rayfleet-gate image host/r/n:t@sha256:abc
rayfleet-gate record {{"tag": "t", "ray": "2.60.0"}}
rayfleet-gate gcs      137 {MINE}
rayfleet-gate autoscaler 1
rayfleet-gate end
"""
    assert parse_inside(text) == Inside(
        image="host/r/n:t@sha256:abc", ray="2.60.0", servers=((137, MINE),), autoscaler=True
    )


def test_a_head_without_container_record_and_processes_is_read() -> None:
    text = "rayfleet-gate record \nrayfleet-gate autoscaler 0\nrayfleet-gate end\n"
    assert parse_inside(text) == Inside()


@pytest.mark.parametrize("text", ["", "Welcome!\n", "rayfleet-gate record {}\n"])
def test_an_answer_that_is_cut_off_is_none(text: str) -> None:
    assert parse_inside(text) is None


@pytest.mark.parametrize("record", ["[1]", "{", "null", '{"tag": "t"}'])
def test_a_strange_record_of_the_image_says_nothing(record: str) -> None:
    found = parse_inside(f"rayfleet-gate record {record}\nrayfleet-gate end\n")
    assert found is not None
    assert found.ray == ""


def test_the_gcs_of_the_session_is_the_one_that_is_meant() -> None:
    inside = Inside(servers=((9000, OTHER), (12, MINE)))
    assert inside.age(SESSION) == 12


def test_the_only_gcs_is_meant_where_its_command_line_names_no_session() -> None:
    inside = Inside(servers=((12, "/opt/ray/gcs_server --old"),))
    assert inside.age(SESSION) == 12
    assert inside.age("") == 12


def test_which_of_several_is_meant_is_not_guessed() -> None:
    assert Inside(servers=((1, OTHER), (2, OTHER))).age(SESSION) is None
    assert Inside().age(SESSION) is None
