"""What an entrypoint needs, from the command line to Ray's fields."""

from __future__ import annotations

import pytest

from rayfleet.errors import UsageError
from rayfleet.job.model import JobRequest
from rayfleet.job.needs import Needs, amount_text, parse_needs, parse_size


def test_every_need_goes_into_the_request_and_nothing_else_does() -> None:
    needs = parse_needs(
        num_cpus="0.5",
        num_gpus="2",
        memory="4GiB",
        resources=["TPU=4", "head_node=0.1"],
        labels=["tier=in(spot, cheap)", "ray.io/node-group=!old"],
    )
    document = JobRequest(submission_id="s1", entrypoint="x", needs=needs).document()
    assert {name: value for name, value in document.items() if name.startswith("entrypoint_")} == {
        "entrypoint_num_cpus": 0.5,
        "entrypoint_num_gpus": 2.0,
        "entrypoint_memory": 4 * 1024**3,
        "entrypoint_resources": {"TPU": 4.0, "head_node": 0.1},
        "entrypoint_label_selector": {"tier": "in(spot, cheap)", "ray.io/node-group": "!old"},
    }
    assert type(document["entrypoint_memory"]) is int


def test_a_job_without_needs_asks_for_nothing_so_that_it_runs_on_the_head() -> None:
    needs = parse_needs(resources=["x=0"])
    assert needs.nothing
    assert needs == Needs()
    document = JobRequest(submission_id="s1", entrypoint="x", needs=needs).document()
    assert set(document) == {"submission_id", "entrypoint", "runtime_env", "metadata"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        ("4GiB", 4 * 1024**3),
        ("4g", 4 * 1024**3),
        ("500MB", 500_000_000),
        ("1.5 GiB", 3 * 1024**3 // 2),
        ("2TiB", 2 * 1024**4),
        ("7B", 7),
        ("1kb", 1000),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize(
    "given",
    [
        {"num_cpus": "two"},
        {"num_cpus": "-1"},
        {"num_cpus": "nan"},
        {"num_cpus": "0.00001"},
        {"num_gpus": "1.5"},
        {"memory": "lots"},
        {"memory": "4 GiBs"},
        {"memory": "-1"},
        {"resources": ["TPU"]},
        {"resources": ["=4"]},
        {"resources": ["TPU=four"]},
        {"resources": ["TPU=4", "TPU=8"]},
        {"resources": ["CPU=4"]},
        {"resources": ["GPU=4"]},
        {"resources": ["memory=4"]},
        {"labels": ["tier"]},
        {"labels": ["tier="]},
        {"labels": ["-tier=x"]},
        {"labels": ["tier=in()"]},
        {"labels": ["tier=a b"]},
        {"labels": ["tier=" + "x" * 64]},
    ],
)
def test_what_ray_could_not_reserve_or_select_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        parse_needs(**given)  # type: ignore[arg-type]


def test_labels_are_what_rays_own_validation_takes() -> None:
    from ray._private.label_utils import validate_label_selector

    for text in ("a=b", "a=!b", "a=in(b)", "a=!in(b, c)", "a.b/c-d=e_f", "a=1"):
        labels = parse_needs(labels=[text]).labels
        assert validate_label_selector(dict(labels)) is None


def test_needs_are_said_in_one_line() -> None:
    needs = Needs(num_cpus=2, memory=3 * 1024**3 // 2, resources={"TPU": 4}, labels={"a": "!b"})
    assert needs.text() == "CPU 2, memory 1.5 GiB, TPU 4, label a=!b"
    assert Needs().text() == "nothing"
    assert amount_text("memory", 512) == "memory 512 B"
