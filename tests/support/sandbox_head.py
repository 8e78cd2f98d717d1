"""The head of a sandbox cluster from inside its container: what Ray itself keeps of its jobs.

Nothing of rayfleet's own reading or submitting is used here, so that it can be judged by this.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.sandbox import SandboxCli

PYTHON = "/opt/ray/bin/python"
SECONDS = 60
AUTH = ("-e", "HOME=/home/ray", "-e", "RAY_AUTH_MODE=token")

# Everything that Ray keeps of its jobs, as JSON; packages by the SHA-256 of their bytes.
FACTS = """
import hashlib, json, sys
from ray._raylet import GcsClient, GcsClientOptions, GlobalStateAccessor
from ray.core.generated.gcs_pb2 import ActorTableData
address = sys.argv[1]
kv = GcsClient(address=address)
prefix = b"_ray_internal_job_info_"
jobs = {
    key[len(prefix):].decode(): json.loads(kv.internal_kv_get(key, b"job"))
    for key in kv.internal_kv_keys(prefix, b"job")
}
state = GlobalStateAccessor(GcsClientOptions.create(
    address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True))
state.connect()
for row in state.get_actor_table(None, None):
    actor = ActorTableData.FromString(row)
    owner = actor.name.removeprefix("_ray_internal_job_actor_")
    if owner in jobs and owner != actor.name and actor.state != ActorTableData.DEAD:
        jobs[owner]["label_selector"] = dict(actor.label_selector)
packages = {
    key.decode(): hashlib.sha256(kv.internal_kv_get(key, None)).hexdigest()
    for key in kv.internal_kv_keys(b"gcs://", None)
}
print(json.dumps({"jobs": jobs, "packages": packages}))
"""

FORGET = """
import sys
from ray._raylet import GcsClient
assert GcsClient(address=sys.argv[1]).internal_kv_del(sys.argv[2].encode(), False, None)
"""

SEND = """
import pathlib, sys, urllib.error, urllib.request
token = pathlib.Path("~/.ray/auth_token").expanduser().read_text()
request = urllib.request.Request(
    "http://127.0.0.1:8265" + sys.argv[2], sys.stdin.buffer.read(), method=sys.argv[1],
    headers={"Content-Type": sys.argv[3], "Authorization": "Bearer " + token})
try:
    urllib.request.urlopen(request, timeout=30).read()
except urllib.error.HTTPError as error:
    sys.exit(f"{error}: {error.read().decode()}")
"""


@dataclass(frozen=True)
class SandboxHead:
    """The head that ``cluster`` has now; another one after a restart."""

    cli: SandboxCli
    cluster: str

    @property
    def name(self) -> str:
        """The container's name, which is also its host name."""
        (row,) = [row for row in self.cli.vms(self.cluster, "head") if row.state == "running"]
        return row.name

    def facts(self) -> dict[str, Any]:
        """``jobs`` by submission id as the GCS keeps them, ``packages`` by URI."""
        facts: dict[str, Any] = json.loads(self._python(FACTS, self._gcs()))
        return facts

    def forget(self, uri: str) -> None:
        """Take a package's bytes out of the GCS."""
        self._python(FORGET, self._gcs(), uri)

    def put(self, package: str, content: bytes) -> None:
        """Upload a package as somebody else's client would."""
        path = f"/api/packages/gcs/{package}"
        self._python(SEND, "PUT", path, "application/octet-stream", given=content)

    def post(self, document: Mapping[str, object]) -> None:
        """Submit a job as somebody else's client would."""
        body = json.dumps(document).encode()
        self._python(SEND, "POST", "/api/jobs/", "application/json", given=body)

    def stop(self, job: str) -> None:
        """Stop a job as somebody else's client would."""
        self._python(SEND, "POST", f"/api/jobs/{job}/stop", "application/json", given=b"{}")

    def delete(self, job: str) -> None:
        """Let the head forget a job that has ended."""
        self._python(SEND, "DELETE", f"/api/jobs/{job}", "application/json")

    def shell(self, script: str, *, given: bytes = b"", detached: bool = False) -> str:
        """Run ``script`` there as the user ray and return what it printed."""
        how = ["-d"] if detached else ["-i"]
        return self._exec([*how, "-u", "ray", *AUTH], ["bash", "-c", script], given).decode()

    def kill(self) -> None:
        """End the container at once, as when the machine is lost."""
        self.cli.engine.client.containers.get(self.name).kill()

    def _gcs(self) -> str:
        (row,) = [row for row in self.cli.vms(self.cluster, "head") if row.state == "running"]
        return f"{row.address}:6379"

    def _python(self, script: str, *argv: str, given: bytes = b"") -> bytes:
        return self._exec(["-i", "-u", "ray", *AUTH], [PYTHON, "-c", script, *argv], given)

    def _exec(self, how: list[str], command: list[str], given: bytes) -> bytes:
        done = subprocess.run(
            ["docker", "exec", *how, self.name, *command],
            input=given,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout
