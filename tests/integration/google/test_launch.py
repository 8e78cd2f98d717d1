"""`ray up` itself against the emulated Google Cloud: the head is a real sshd."""

from __future__ import annotations

import getpass
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.cluster.machines import Machines
from rayfleet.cluster.nodes import Nodes
from rayfleet.errors import ToolFailed
from rayfleet.project import Project
from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster, read_production
from tests.support.quick_yaml import write_yaml
from tests.support.sshd import LocalSshd

pytestmark = pytest.mark.integration

NOTHING = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[LocalSshd]:
    server = LocalSshd(folder=tmp_path / "sshd")
    server.prepare()
    yield server
    server.stop()


@pytest.fixture
def cluster(
    google: Google, sshd: LocalSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> GoogleCluster:
    """The production config of us-central2, whose commands do nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    content = read_production("us-central2")
    content |= {key: ["true"] for key in NOTHING}
    del content["docker"]
    content["provider"] = google.provider(content["provider"], poll_interval=0)
    content["auth"] = {
        "ssh_user": getpass.getuser(),
        "ssh_private_key": str(sshd.folder / "client_key"),
        "ssh_proxy_command": sshd.inetd_command,
    }
    (tmp_path / "us-central2.yaml").write_text(write_yaml(content))
    # The machines of this one do not run the agent that would record their keys.
    (tmp_path / ".ssh").mkdir()
    key = (sshd.folder / "host_key.pub").read_text()
    record_host_key(tmp_path / ".ssh" / "known_hosts", content["cluster_name"], key)
    return GoogleCluster(google=google, content=content)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def machines(cluster: GoogleCluster, project: Project, tmp_path: Path, said: list[str]) -> Machines:
    made = cluster.machines(project, said.append)
    path = tmp_path / "us-central2.yaml"
    config: LaunchConfig = replace(
        cluster.launch_config, path=path, hash=hashlib.sha256(path.read_bytes()).hexdigest()
    )
    made.__dict__.update(
        config=config, nodes=Nodes(config, clock=made.clock or cluster.google.clock)
    )
    return made


def head(google: Google) -> dict[str, Any]:
    (row,) = google.cloud.state.table("instances").values()
    view: dict[str, Any] = row["view"]
    return view


def test_a_zone_without_machines_is_what_the_error_says(google: Google, machines: Machines) -> None:
    google.cloud.stockouts.add(("n2-standard-8", "us-central2-b"))
    with pytest.raises(ToolFailed, match="does not have enough resources"):
        machines.launch()
    assert machines.nodes.remaining() == ()


def test_an_api_that_is_down_for_a_moment_is_asked_again(
    google: Google, machines: Machines, said: list[str]
) -> None:
    google.inject("compute.subnetworks.list", status=503)
    google.inject("compute.zoneOperations.get", status=500)  # the head is being made already
    assert machines.launch() == head(google)["name"]
    assert said.count("ray up") == 3
    assert len(google.states("instances")) == 1
