"""The project is found from wherever the operator stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.errors import UsageError
from rayfleet.project import find_project


def test_the_nearest_folder_upwards_with_tasks_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").touch()
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "sandbox.yaml").touch()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    project = find_project(deep)
    assert (project.root, project.state) == (tmp_path, tmp_path / ".rayfleet")
    assert find_project(deep, state="/elsewhere").state == Path("/elsewhere")
    assert project.shown(tmp_path / "infra" / "x") == "infra/x"


def test_no_project_and_no_fleet_file_are_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").touch()
    with pytest.raises(UsageError, match=r"no fleet file .*nothing\.yaml"):
        find_project(tmp_path, fleet="nothing.yaml")
    with pytest.raises(UsageError, match="in no project"):
        find_project(Path("/"))


def test_a_state_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    for name in ("tasks.py", "fleet.yaml", "state"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"key 'state' is 'state', which .*it is no folder"):
        find_project(tmp_path, fleet="fleet.yaml", state="state")
