"""What Ray's launcher may see, and what a generated config says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.cluster.config import container_name, read_launch_config
from rayfleet.cluster.launcher import Cause, launch_environment
from rayfleet.errors import UsageError
from rayfleet.fleet.load import load_fleet

ROOT = Path(__file__).resolve().parents[3]


def test_the_operators_ray_address_never_reaches_ray() -> None:
    operators = {"RAY_ADDRESS": "ray://prod:10001", "RAY_API_SERVER_ADDRESS": "x", "HOME": "/h"}
    seen = launch_environment(operators, Path("/private"), Path("/programs"))
    assert not {"RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"} & set(seen)
    assert seen["HOME"] == "/h"
    assert seen["TMPDIR"] == "/private"
    assert seen["PATH"].startswith("/programs:")


def test_the_committed_production_configs_can_be_launched_from() -> None:
    fleet = load_fleet(ROOT / "infra" / "fleet.yaml", root=ROOT, state=Path("/nowhere"))
    config = read_launch_config(fleet, fleet.clusters["us-east5"])
    assert config.identity == "marin-us-east5"
    assert config.image.startswith("us-east5-docker.pkg.dev/hai-gcp-models/marin/marin_cluster:")
    assert config.min_workers == {"tpu_slice_v6e_128": 8}
    assert config.provider["availability_zone"] == "us-east5-b"
    assert len(config.hash) == 64


def test_the_container_has_the_name_that_the_config_gives_it() -> None:
    assert (
        container_name({"docker": {"image": "i", "container_name": "my-ray_1.x"}}) == "my-ray_1.x"
    )
    assert container_name({}) == container_name({"docker": {}}) == ""
    for name in ("a b", "$(id)", "-it", "a;b", "é"):
        with pytest.raises(ValueError, match="no name of a container"):
            container_name({"docker": {"container_name": name}})


def test_a_config_that_is_missing_or_no_config_is_a_clear_error(tmp_path: Path) -> None:
    fleet = load_fleet(ROOT / "infra" / "sandbox.yaml", root=ROOT, state=tmp_path)
    cluster = fleet.clusters["us-east5"]
    with pytest.raises(UsageError, match="no generated config"):
        read_launch_config(fleet, cluster)
    path = fleet.config_path(cluster)
    path.parent.mkdir(parents=True)
    path.write_text("just: text")
    with pytest.raises(UsageError, match="is no cluster config"):
        read_launch_config(fleet, cluster)


# What Ray 2.60 printed where the head had no working `ray`, shortened.
FAILED_UP = """\
2026-11-21 17:49:12,718\tVVINFO command_runner.py:401 -- Full command is `ssh -tt ray@head (mkdir)`
sending incremental file list
2026-11-21 17:49:13,897\tVINFO command_runner.py:399 -- Running `export A=1; ray stop`
2026-11-21 17:49:13,898\tVVINFO command_runner.py:401 -- Full command is `ssh -tt ray@head (ray)`
ray: cannot open shared object
Shared connection to head closed.
2026-11-21 17:49:14,063\tINFO log_timer.py:25 -- NodeUpdater: Ray start commands failed
2026-11-21 17:49:14,596\tERR updater.py:177 -- New status: update-failed
2026-11-21 17:49:14,599\tERR updater.py:191 -- Full traceback: Traceback (most recent call last):
  File "updater.py", line 172, in run
click.exceptions.ClickException: SSH command failed.
2026-11-21 17:49:14,924\tPANIC commands.py:925 -- Failed to setup head node.
Error: Failed to setup head node."""


def test_the_cause_of_a_failed_launch_is_what_its_last_command_said() -> None:
    cause = Cause()
    for line in FAILED_UP.splitlines():
        cause.hear(line)
    assert cause.lines() == ["ray: cannot open shared object", "Failed to setup head node."]


def test_a_launch_that_names_no_failure_has_no_such_cause() -> None:
    cause = Cause()
    for line in ("Traceback (most recent call last):", "ModuleNotFoundError: No module named x"):
        cause.hear(line)
    assert cause.lines() == []
