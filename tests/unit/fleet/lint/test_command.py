"""`invoke fleet.lint FILE…` as one types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.fleet.conftest import REPOSITORY
from tests.unit.fleet.lint.examples import GOOD, spoiled


def run(*words: str, fleet: str = "infra/fleet.yaml") -> subprocess.CompletedProcess[str]:
    """Run Invoke in the repository with ``fleet`` as its fleet file."""
    return subprocess.run(
        [sys.executable, "-m", "invoke", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "INVOKE_FLEET": fleet, "NO_COLOR": "1"},
    )


def test_errors_are_listed_with_file_and_line_and_fail(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "my config.yaml"
    good.write_text(GOOD["aws"])
    bad.write_text(spoiled("gcp", {"us-west4-a": "us-west1-a", "ray:2.60.0": "ray:latest"}))
    # A fleet file that is not there is in nobody's way.
    finished = run("fleet.lint", str(good), str(bad), fleet="none.yaml")
    assert finished.returncode == 1
    assert finished.stdout.splitlines() == [
        f"error: {bad}:6: provider.availability_zone: us-west1-a is not in us-west4",
        f"warning: {bad}:22: docker.image: has the tag latest, which moves, so workers of another"
        " day run another image; write a version or digest",
    ]
    assert finished.stderr.splitlines() == [
        "error: lint found 1 error",
        f"  next: mend what is listed above, then run: invoke fleet.lint {good} '{bad}'",
    ]


def test_warnings_alone_do_not_fail_and_json_has_every_field(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(spoiled("aws", {"ray:2.60.0": "ray"}))
    finished = run("fleet.lint", str(path), "--json")
    assert finished.returncode == 0
    (found,) = json.loads(finished.stdout)
    assert found.pop("text").startswith("docker.image: has no tag")
    assert found == {
        "level": "warning",
        "rule": "image-moves",
        "where": f"{path}:22",
        "file": str(path),
        "line": 22,
        "key": "docker.image",
    }


def test_files_without_a_fault_are_said_to_be_fine(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.yaml" for name in ("aws", "gcp")]
    for path in paths:
        path.write_text(GOOD[path.stem])
    finished = run("fleet.lint", *map(str, paths))
    assert (finished.returncode, finished.stdout) == (0, "")
    assert "nothing to say: the 2 files are fine" in finished.stderr


def test_a_cluster_config_as_fleet_file_gets_the_command_for_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD["aws"])
    finished = run("fleet.list", fleet=str(path))
    assert finished.returncode == 1
    assert "this is a Ray cluster config and no fleet file" in finished.stderr
    assert f"next: invoke fleet.lint {path}" in finished.stderr


def test_an_unknown_option_is_no_file() -> None:
    finished = run("fleet.lint", "--jsn")
    assert finished.returncode == 1
    assert "fleet.lint has no option '--jsn'" in finished.stderr
