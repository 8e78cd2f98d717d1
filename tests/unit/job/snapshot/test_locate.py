"""The right GCS and the right Python among the processes of a machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.job.snapshot.locate import NotFound, environment, find

SITE = "/opt/ray/lib/python3.11/site-packages/ray"


@dataclass
class Proc:
    """A /proc to write processes into."""

    root: Path
    _last: int = 100

    def add(self, words: Sequence[str], *, nested: bool = False, environ: str = "") -> int:
        """Add one process; a nested one runs in a container of this machine."""
        self._last += 1
        folder = self.root / str(self._last)
        folder.mkdir()
        (folder / "cmdline").write_text("\0".join(words) + "\0")
        ids = f"{self._last}\t7" if nested else str(self._last)
        (folder / "status").write_text(f"Name:\tx\nNSpid:\t{ids}\n")
        (folder / "environ").write_text(environ)
        return self._last

    def head(
        self, session: str, *, port: int, gcs: int = 6379, nested: bool = False, python: str = ""
    ) -> int:
        """Add the processes of one head; port 0 leaves out those that would tell it."""
        folder = f"/tmp/ray/{session}"
        pid = self.add(
            [
                f"{SITE}/core/src/ray/gcs/gcs_server",
                *("--node-ip-address=10.0.0.2", f"--gcs_server_port={gcs}"),
                *(f"--session-name={session}", f"--session-dir={folder}"),
            ],
            nested=nested,
        )
        if port:
            dashboard = f"{SITE}/dashboard/dashboard.py"
            shared = (f"--session-dir={folder}", f"--gcs-address=10.0.0.1:{gcs}")
            self.add([python or sys.executable, dashboard, f"--port={port}", *shared])
        return pid

    def find(self, port: int) -> tuple[int, str, str]:
        """What is found: process, address and session of the GCS."""
        where = find(str(port), str(self.root))
        return where.pid, where.address, where.session


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """An empty /proc, apart from what else is in one."""
    (tmp_path / "uptime").write_text("1 2")
    (tmp_path / "1").mkdir()  # a kernel thread, or a process that ended: nothing in it
    (tmp_path / "1" / "cmdline").write_text("")
    return Proc(tmp_path)


def test_the_only_gcs_is_found_with_its_address_and_session(proc: Proc) -> None:
    pid = proc.head("session_a", port=8265, gcs=6380)
    assert proc.find(8265) == (pid, "10.0.0.1:6380", "session_a")
    assert find("8265", str(proc.root)).python == sys.executable


def test_a_machine_without_ray_is_told_from_one_without_jobs(proc: Proc) -> None:
    proc.add(["/usr/bin/python3", "/srv/ray/gcs_server_notes.py"])
    with pytest.raises(NotFound, match="no gcs_server process") as caught:
        proc.find(8265)
    assert caught.value.reason == "no-ray"


def test_of_several_heads_the_dashboard_port_tells_which_is_meant(proc: Proc) -> None:
    proc.head("session_a", port=8265)
    second = proc.head("session_b", port=8266, gcs=6380)
    assert proc.find(8266) == (second, "10.0.0.1:6380", "session_b")


def test_another_head_is_never_taken_for_the_one_that_is_gone(proc: Proc) -> None:
    proc.head("session_b", port=8266)
    with pytest.raises(NotFound, match="only at 8266") as caught:
        proc.find(8265)
    assert caught.value.reason == "no-ray"


def test_two_heads_at_one_port_are_not_guessed_between(proc: Proc) -> None:
    proc.head("session_a", port=8265)
    proc.head("session_b", port=8265)
    with pytest.raises(NotFound, match="2 Rays there") as caught:
        proc.find(8265)
    assert caught.value.reason == "several"


def test_a_dead_dashboard_does_not_hide_the_gcs(proc: Proc) -> None:
    """Marin #1701: what is broken when somebody restarts a head is often the dashboard."""
    pid = proc.head("session_a", port=0)
    assert proc.find(8265) == (pid, "10.0.0.2:6379", "session_a")
    raylet = ["--session-name=session_a", "--webui=127.0.0.1:8270", "--gcs-address=10.0.0.3:1"]
    proc.add([f"{SITE}/core/src/ray/raylet/raylet", *raylet])
    assert proc.find(8270) == (pid, "10.0.0.3:1", "session_a")
    with pytest.raises(NotFound, match="only at 8270"):
        proc.find(8265)


def test_ray_in_a_container_of_the_machine_is_not_the_machines_ray(proc: Proc) -> None:
    proc.head("session_a", port=0, nested=True)
    with pytest.raises(NotFound, match="only in a container that could not be entered"):
        proc.find(8265)
    own = proc.head("session_b", port=8265)
    assert proc.find(8265)[0] == own


def test_an_ipv6_address_of_the_gcs_is_put_into_brackets(proc: Proc) -> None:
    words = [f"{SITE}/core/src/ray/gcs/gcs_server", "--node-ip-address=fd00::2"]
    pid = proc.add([*words, "--gcs_server_port=1", "--session-name=s"])
    assert proc.find(8265) == (pid, "[fd00::2]:1", "s")


def test_without_any_process_of_ray_the_python_beside_the_gcs_is_taken(
    proc: Proc, tmp_path: Path
) -> None:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").symlink_to(sys.executable)
    server = f"{prefix}/lib/python3.11/site-packages/ray/core/src/ray/gcs/gcs_server"
    proc.add([server, "--session-name=s"])
    assert find("8265", str(proc.root)).python == f"{prefix}/bin/python3"


def test_a_raylet_names_the_python_of_its_workers(proc: Proc) -> None:
    proc.add([f"{SITE}/core/src/ray/gcs/gcs_server", "--session-name=s"])
    worker = f"--python_worker_command={sys.executable} {SITE}/_private/workers/default_worker.py"
    proc.add([f"{SITE}/core/src/ray/raylet/raylet", "--session-name=s", worker])
    assert find("8265", str(proc.root)).python == sys.executable


def test_a_python_that_is_not_there_is_not_taken(proc: Proc) -> None:
    proc.head("session_a", port=8265, python="/nowhere/bin/python")
    assert find("8265", str(proc.root)).python == ""


def test_the_environment_is_that_of_the_gcs_without_what_leads_elsewhere(proc: Proc) -> None:
    values = ["RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN=a=b", "HOME=/home/ray"]
    misleading = ["RAY_ADDRESS=http://10.9.9.9:8265", "RAY_API_SERVER_ADDRESS=http://x"]
    pid = proc.add(["gcs_server"], environ="\0".join([*values, *misleading]) + "\0")
    assert environment(pid, str(proc.root)) == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "a=b",
        "HOME": "/home/ray",
        "RAY_BACKEND_LOG_LEVEL": "fatal",
    }


def test_a_gcs_that_ended_meanwhile_is_no_ray(proc: Proc) -> None:
    with pytest.raises(NotFound, match="Ray ended while it was being looked for"):
        environment(4242, str(proc.root))
