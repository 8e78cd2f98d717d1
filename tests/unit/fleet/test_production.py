"""The generated production configs against a table of what production ran with.

The figures were taken from the clusters' own files of December 2025, not from fleet.yaml.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayfleet.fleet.pins import read_pins
from tests.support.quick_yaml import read_yaml
from tests.unit.fleet.conftest import REPOSITORY

CONFIGS = REPOSITORY / "infra" / "clusters"
PROJECT = "hai-gcp-models"
LATEST = "LATEST"
POWERS = tuple(1 << power for power in range(13))


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """TPUs: the runtime version, the base worker, the other slices, those of one host with 8."""

    runtime: str
    base: str
    slices: tuple[str, ...] = ()
    eight: tuple[str, ...] = ()


def _between(prefix: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}-{size}" for size in POWERS if first <= size <= last)


GENERATIONS = {
    "v4": Generation(runtime="tpu-ubuntu2204-base", base="v4-8", slices=_between("v4", 16, 4096)),
    "v5e": Generation(
        runtime="v2-alpha-tpuv5-lite",
        base="v5litepod-4",
        slices=_between("v5litepod", 8, 256),
        eight=("v5litepod-8",),
    ),
    "v5p": Generation(runtime="v2-alpha-tpuv5", base="v5p-8", slices=_between("v5p", 8, 2048)),
    "v6e": Generation(
        runtime="v2-alpha-tpuv6e",
        base="v6e-4",
        slices=_between("v6e", 8, 256),
        eight=("v6e-8",),
    ),
    "v6e-serve": Generation(runtime="v2-alpha-tpuv6e", base="v6e-8", eight=("v6e-8",)),
}
STAGING_MOST = {"worker": 4, "v4_16": 2, "v4_32": 2, "v4_64": 2} | {
    f"v4_{size}": 1 for size in (128, 256, 512, 1024, 2048, 4096)
}
# file | cluster_name | zone | generation | minimums | image:tag | bucket
TABLE = """
us-central2         | marin-us-central2         | us-central2-b  | v4        | worker 4 | marin_cluster:LATEST | marin-us-central2
us-central2-compress| marin-us-central2-compress| us-central2-b  | v4        | worker 4 | marin_cluster:LATEST | marin-us-central2
big-run             | marin-big-run             | us-central2-b  | v4        |          | marin_cluster:LATEST | marin-us-central2
us-central2-staging | marin-us-central2-staging | us-central2-b  | v4        | worker 4 | marin_cluster_test:LATEST | marin-us-central2
us-central2-vllm    | marin-us-central2-vllm    | us-central2-b  | v4        | worker 2 | marin_vllm:1bc975e12 | marin-us-central2
us-central1         | marin-us-central1         | us-central1-a  | v5p       | worker 1; v5p_8 12; v5p_16 1; v5p_32 1; v5p_64 1 | marin_cluster:LATEST | marin-us-central1
us-central1-vllm    | marin-us-central1-vllm    | us-central1-a  | v5p       | worker 1; v5p_8 2 | marin_vllm:LATEST | marin-us-central1
us-east5-a          | marin-us-east5-a          | us-east5-a     | v5p       | worker 8; v5p_64 4 | marin_cluster:LATEST | marin-us-east5
us-east5-a-vllm     | marin-us-east5-a-vllm     | us-east5-a     | v5p       | worker 1; v5p_8 2 | marin_vllm:LATEST | marin-us-east5
us-east5            | marin-us-east5            | us-east5-b     | v6e       | v6e_128 8 | marin_cluster:LATEST | marin-us-east5
us-east5-b-vllm     | marin-us-east5-b-vllm     | us-east5-b     | v6e-serve | worker 2 | marin_vllm:6e804a10 | marin-us-east5
us-east1            | marin-us-east1-d          | us-east1-d     | v6e       | v6e_128 8 | marin_cluster:LATEST | marin-us-east1
us-east1-d-vllm     | marin-us-east1-d-vllm     | us-east1-d     | v6e-serve | worker 2 | marin_vllm:1bc975e12 | marin-us-east1
us-west4            | marin-us-west4            | us-west4-a     | v5e       |          | marin_cluster:LATEST | marin-us-west4
eu-west4            | marin-eu-west4            | europe-west4-b | v5e       | worker 4; v5e_128 1 | marin_cluster:LATEST | marin-eu-west4
eu-west4-vllm       | marin-eu-west4-vllm       | europe-west4-b | v5e       | worker 2 | marin_vllm:7fab502e | marin-eu-west4
eu-west4-a          | marin-eu-west4-a          | europe-west4-a | v6e       | v6e_128 2 | marin_cluster:LATEST | marin-eu-west4
"""  # noqa: E501
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]

HEAD_OPTIONS = {
    "--privileged",
    "-v /tmp:/tmp",
    "--ulimit nofile=1048576:1048576",
    "-e RAY_TPU_MAX_CONCURRENT_ACTIVE_CONNECTIONS=64",
    "-e AUTOSCALER_HEARTBEAT_TIMEOUT_S=600",
    "-e MARIN_LOCAL_CACHE_DIR=/tmp/marin-cache",
}
WORKER_OPTIONS = {
    "--privileged",
    "-v /tmp:/tmp",
    "-v /var/run/docker.sock:/var/run/docker.sock",
    "--ulimit memlock=-1:-1",
    "-e AUTOSCALER_HEARTBEAT_TIMEOUT_S=600",
    "-e MARIN_LOCAL_CACHE_DIR=/tmp/marin-cache",
    "--restart=on-failure",
    "--rm=0",
    "--ulimit nofile=1048576:1048576",
    "-e TPU_LOG_DIR=disabled",
    "-e TPU_MIN_LOG_LEVEL=3",
    "-e TPU_STDERR_LOG_LEVEL=3",
}


def config(name: str) -> dict[str, Any]:
    loaded = read_yaml((CONFIGS / f"{name}.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_table_and_the_configs_name_the_same_clusters() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_production_cluster_is_named_and_placed_as_it_was(row: list[str]) -> None:
    name, identity, zone, _, _, image, bucket = row
    found = config(name)
    region = zone.rpartition("-")[0]
    assert found["cluster_name"] == identity
    assert found["provider"] == {
        "type": "gcp",
        "region": region,
        "availability_zone": zone,
        "project_id": PROJECT,
    }
    assert found["max_workers"] == 1024
    assert found["auth"] == {
        "ssh_user": "ray",
        "ssh_private_key": "~/.ssh/marin_ray_cluster.pem",
        "ssh_public_key": "~/.ssh/marin_ray_cluster.pub",
    }
    docker = found["docker"]
    assert (docker["container_name"], docker["pull_before_run"]) == ("ray_docker", True)
    assert docker["image"] == f"{region}-docker.pkg.dev/{PROJECT}/marin/{pinned(image)}"
    assert {f"-e MARIN_PREFIX=gs://{bucket}", f"-e BUCKET={bucket}"} <= set(docker["run_options"])


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_node_types_of_a_production_cluster_are_those_of_its_generation(row: list[str]) -> None:
    name, generation = row[0], GENERATIONS[row[3]]
    types = dict(config(name)["available_node_types"])
    head = types.pop("head_default")
    assert (head["min_workers"], head["max_workers"]) == (0, 0)
    assert head["resources"] == {"CPU": 0, "head_node": 1}
    assert head["node_config"]["machineType"] == "n2-standard-8"
    # Where the head records its host keys, which whoever enters it is to check.
    assert head["node_config"]["metadata"] == {
        "items": [{"key": "enable-guest-attributes", "value": "TRUE"}]
    }
    (disk,) = head["node_config"]["disks"]
    assert (disk["boot"], disk["autoDelete"], disk["type"]) == (True, True, "PERSISTENT")
    assert disk["initializeParams"]["diskSizeGb"] == 200
    assert disk["initializeParams"]["sourceImage"].endswith("family/ubuntu-2204-lts")

    minimums = {key: int(count) for key, count in map(str.split, filter(None, row[4].split(";")))}
    most = STAGING_MOST if name == "us-central2-staging" else {}
    # A v5litepod is a v5e where Ray's node types are named.
    wanted = {"worker": generation.base} | {
        one.replace("v5litepod", "v5e").replace("-", "_"): one for one in generation.slices
    }
    expected = {
        f"tpu_{key}" if key == "worker" else f"tpu_slice_{key}": {
            "min_workers": minimums.pop(key, 0),
            "max_workers": most.get(key, 1024),
            "resources": {"CPU": 120, "TPU": 8 if kind in generation.eight else 4},
            "node_config": {
                "acceleratorType": kind,
                "runtimeVersion": generation.runtime,
                "schedulingConfig": {"preemptible": True},
                "metadata": {"enable-guest-attributes": "TRUE"},
            },
        }
        for key, kind in wanted.items()
    }
    assert minimums == {}
    assert types == expected


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_containers_run_with_the_options_of_production(row: list[str]) -> None:
    docker = config(row[0])["docker"]
    both, serving = set(docker["run_options"]), row[0].endswith("-vllm")
    assert both | set(docker["head_run_options"]) >= HEAD_OPTIONS
    worker = both | set(docker["worker_run_options"])
    assert worker >= WORKER_OPTIONS
    # Those that serve keep up to 160 GB of the bucket there.
    memory = "--shm-size=200gb" if serving else "--shm-size=100gb"
    assert [one for one in worker if "shm" in one] == [memory]
    assert not {"--restart=on-failure"} & (both | set(docker["head_run_options"]))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_ray_is_started_as_production_started_it(row: list[str]) -> None:
    found = config(row[0])
    head, worker = (found[f"{role}_start_ray_commands"] for role in ("head", "worker"))
    assert head[0] == worker[0] == "ray stop"
    words = shlex.split(head[-1].rpartition(";")[2])
    assert words[:3] == ["ray", "start", "--head"]
    assert {"--port=6379", "--autoscaling-config=~/ray_bootstrap_config.yaml"} <= set(words)
    words = shlex.split(worker[-1].rpartition(";")[2])
    assert words[:3] == ["ray", "start", "--address=$RAY_HEAD_IP:6379"]
    assert (found["idle_timeout_minutes"], found["upscaling_speed"]) == (5, 1.0)
    cleared = "rm -rf /tmp/ray/session_*/runtime_resources/"
    assert cleared in found["worker_setup_commands"]


SERVING = [row[0] for row in ROWS if row[0].endswith("-vllm")]


@pytest.mark.parametrize("name", SERVING)
@pytest.mark.parametrize("role", ["head", "worker"])
@pytest.mark.parametrize(
    ("mounted", "works", "said", "mounts"),
    [(True, True, "", 0), (False, True, "", 1), (False, False, "the bucket is not mounted\n", 1)],
)
def test_the_bucket_is_mounted_once_and_only_a_failure_is_told(
    tmp_path: Path, name: str, role: str, mounted: bool, works: bool, said: str, mounts: int
) -> None:
    found = config(name)
    lines = [*found["setup_commands"], *found[f"{role}_setup_commands"]]
    (command,) = [line for line in lines if "gcsfuse" in line]
    asked = tmp_path / "asked"
    for program, code in {
        "mountpoint": 0 if mounted else 1,
        "gcsfuse": 0 if works else 1,
        "mkdir": 0,
    }.items():
        tool = tmp_path / "bin" / program
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho "{program} $*" >> {asked}\nexit {code}\n')
        tool.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", command],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert (done.returncode, done.stderr) == (0, said)
    asked_for = [line for line in asked.read_text().splitlines() if line.startswith("gcsfuse")]
    assert len(asked_for) == mounts
    # The cache lies in shared memory, of which a head has less than it takes.
    assert all(("--cache-dir /dev/shm" in line) is (role == "worker") for line in asked_for)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_cluster_that_wants_tokens_has_an_image_that_knows_them(row: list[str]) -> None:
    # Ray 2.52 brought them; 4554f82 has Ray 2.45, 20260129 was started with tokens.
    wants = "-e RAY_AUTH_MODE=token" in config(row[0])["docker"]["run_options"]
    assert wants is not row[0].endswith("-vllm")
    if wants and row[5] == "marin_cluster:LATEST":
        assert pinned(row[5]) != "marin_cluster:4554f82"


def pinned(image: str) -> str:
    """``name:tag``; what says LATEST has what the lock file pins, or is not pinned yet."""
    name, _, tag = image.partition(":")
    if tag != LATEST:
        return image
    pin = read_pins(REPOSITORY / "infra" / "images.lock.yaml")[name.removeprefix("marin_")]
    return f"{name}:{pin.tag}@{pin.digest}" if pin.digest else f"{name}:{pin.tag}"


def test_what_a_host_installs_is_looked_up_first() -> None:
    """A new machine knows no packages, or those of the day its image was made."""
    installs = 0
    for path in CONFIGS.glob("*.yaml"):
        for command in read_yaml(path.read_text())["initialization_commands"]:
            before, install, _ = command.partition(" install -y")
            if "apt-get" in before and install:
                installs += 1
                assert re.search(r"apt-get [^;|&]*update", before), (path.name, command)
    assert installs
