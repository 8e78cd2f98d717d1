"""``invoke dashboard`` as a process, in a fleet whose clusters were never made."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from rayfleet.waiting import wait_until
from tests.support.processes import with_default_signals

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
INVOKE = Path(sys.executable).with_name("invoke")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    state = {"INVOKE_STATE": str(tmp_path / "state"), "TMPDIR": str(tmp_path / "tmp")}
    return env | state | {"SSH_CONNECTION": "198.51.100.1 1 198.51.100.2 22"}


@pytest.fixture
def running(tmp_path: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            with_default_signals(INVOKE, "dashboard", "--cluster", "us-*"),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=60)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_one_address_serves_and_leaves_nothing(
    tmp_path: Path, running: subprocess.Popen[str], sign: signal.Signals
) -> None:
    assert running.stdout is not None
    link = running.stdout.readline().strip()
    address, _, secret = link.partition("/enter?key=")
    with urllib3.PoolManager() as pool:
        entered = pool.request("GET", link, timeout=60)
        cookie = {"Cookie": entered.headers["Set-Cookie"].partition(";")[0]}

        def page() -> str:
            answer = pool.request("GET", f"{address}/clusters", headers=cookie, timeout=60)
            return answer.data.decode()

        # Nothing was ever rendered: each cluster says so, and what to do.
        wait_until(
            lambda: page().count("has no generated config") == 3,
            what="the causes",
            timeout=60,
            reason=page,
        )
        assert "europe-west4" not in page()
    assert secret not in Path(f"/proc/{running.pid}/cmdline").read_text()
    running.send_signal(sign)
    rest, _ = running.communicate(timeout=60)
    assert (running.returncode, rest) == (0, "")
    said = (tmp_path / "stderr").read_text()
    port = int(address.rpartition(":")[2])
    assert f"ssh -N -L {port}:127.0.0.1:{port} -L " in said
    assert secret not in said
    assert "Traceback" not in said
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "state" / "dashboard.html").exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_makes_no_sense_is_refused(environment: dict[str, str]) -> None:
    for port, code in (("x", 1), ("99999", 1)):
        finished = subprocess.run(
            [INVOKE, "dashboard", "--port", port],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert finished.returncode == code
        assert finished.stderr.startswith("error: ")
        assert "Traceback" not in finished.stderr
