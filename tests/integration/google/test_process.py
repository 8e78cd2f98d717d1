"""The emulator as a process of its own, for rehearsals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from rayfleet.google_api import service

pytestmark = pytest.mark.integration

ZONE = "us-east5-a"
PARENT = f"projects/p/locations/{ZONE}"
NODE = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e"}


@contextmanager
def emulator(folder: Path, port: int = 0) -> Iterator[dict[str, str]]:
    """Run it; gives the variables that it prints."""
    argv = [sys.executable, "-m", "rayfleet.emulator", "--folder", str(folder), "--project", "p"]
    process = subprocess.Popen(
        [*argv, "--port", str(port), "--speed", "1000"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(8)]
        pairs = (line.removeprefix("export ").strip().partition("=") for line in lines)
        yield {name: value.strip("'") for name, _, value in pairs}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        process.stdout.close()
    assert process.returncode == 0


def tell(url: str, verb: str, **fields: Any) -> int:
    body = json.dumps(fields)
    with urllib3.PoolManager() as pool:
        answer = pool.request("POST", f"{url}emulator/{verb}", body=body, retries=False)
        return int(answer.status)


def test_it_keeps_its_state_and_takes_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with emulator(tmp_path) as variables:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            url = variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"]
            nodes = service("tpu", "v2").projects().locations().nodes()
            if not nodes.list(parent=PARENT).execute():
                nodes.create(parent=PARENT, nodeId="w1", body=NODE).execute()
                assert tell(url, "advance", seconds=600) == 200
                (ready,) = nodes.list(parent=PARENT).execute()["nodes"]
                assert ready["state"] == "READY"
                assert tell(url, "preempt", name="w1") == 200
            (found,) = nodes.list(parent=PARENT).execute()["nodes"]
            assert found["state"] == "PREEMPTED"
            assert tell(url, "preempt", name="none") == 400
            assert tell(url, "invent") == 400
