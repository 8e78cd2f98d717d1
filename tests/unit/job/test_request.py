"""From the command line to a request."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rayfleet.errors import UsageError
from rayfleet.job.request import (
    Order,
    new_submission_id,
    parse_env,
    parse_metadata,
    parse_order,
    recorded_command,
)


def order(**changes: object) -> Order:
    given: dict[str, object] = {
        "entrypoint": "python x.py",
        "working_dir": "",
        "env": [],
        "timeout": "60",
        "argv": [],
        "environ": {},
    }
    return parse_order(**(given | changes))  # type: ignore[arg-type]


def test_a_variable_comes_from_the_argument_or_from_the_environment() -> None:
    env = parse_env(["A=1=2", "B", "C="], {"B": "hunter2", "A": "9"})
    assert env == {"A": "1=2", "B": "hunter2", "C": ""}


@pytest.mark.parametrize("pair", ["UNSET", "=x", "1A=x", "s3cret word", "A B=s3cret"])
def test_a_variable_that_makes_no_sense_is_refused_without_its_value(pair: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_env([pair], {})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"entrypoint": " "},
        {"timeout": "0"},
        {"timeout": "inf"},
    ],
)
def test_bad_arguments_are_usage_errors(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        order(**changes)


def test_ids_are_fit_for_paths_and_never_equal() -> None:
    now = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    first, second = (new_submission_id("Jürgen O/Neil", now) for _ in range(2))
    assert first.startswith("rayfleet-j-rgen-o-neil-20260203T040506Z-")
    assert first != second


def test_the_recorded_command_has_no_values_of_variables() -> None:
    argv = ["invoke", "jobs.submit", "--env", "A=hunter2", "--env=B=hunter2", "--env", "C", "x y"]
    assert recorded_command(argv) == (
        "invoke jobs.submit --env 'A=***' '--env=B=***' --env C 'x y'"
    )


def test_the_recorded_command_has_no_secret_wherever_it_stands() -> None:
    entrypoint = "WANDB_API_KEY=hunter2 python x.py --token hunter2 --in hunter3 --num-keys 3"
    argv = ["invoke", "jobs.submit", "--metadata", "ticket=hunter2", "--env", "KEY", entrypoint]
    recorded = recorded_command(argv, ["hunter3"])
    assert "hunter" not in recorded
    assert "--metadata 'ticket=***'" in recorded
    assert "python x.py --token *** --in *** --num-keys 3" in recorded


def test_metadata_is_added_and_cannot_replace_what_we_record() -> None:
    given = order(metadata=["ticket=a=b", "rayfleet_role=infrastructure"])
    found = given.request().metadata
    assert (found["ticket"], found["rayfleet_role"]) == ("a=b", "infrastructure")
    assert {"owner", "commit", "command"} < set(found)
    for key in ("owner", "commit", "command"):
        with pytest.raises(UsageError, match=f"--metadata {key} is recorded by rayfleet itself"):
            parse_metadata([f"{key}=x"])


def test_the_repr_of_an_order_and_of_its_request_has_no_values() -> None:
    given = order(env=["A=hunter2"], argv=["x", "--env", "A=hunter2"])
    assert "hunter2" not in repr(given)
    assert "hunter2" not in repr(given.request())


def test_metadata_tells_owner_commit_and_command(tmp_path: Path) -> None:
    (tmp_path / "x.py").touch()
    for arguments in ("init", "add .", "-c user.name=a -c user.email=a@b commit -m x"):
        subprocess.run(["git", *arguments.split()], cwd=tmp_path, check=True, capture_output=True)
    found = order(working_dir=str(tmp_path), argv=["invoke", "jobs.submit"]).request().metadata
    assert "@" in found["owner"]
    assert len(found["commit"]) == 40
    assert found["command"] == "invoke jobs.submit"
    (tmp_path / "x.py").write_text("changed")
    found = order(working_dir=str(tmp_path)).request().metadata
    assert found["commit"].endswith("-dirty")
