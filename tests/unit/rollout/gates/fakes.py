"""A head with a Ray that answers from memory, and gates that answer from a script."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import urllib3

from rayfleet.cluster.channel import CommandResult
from rayfleet.cluster.config import LaunchConfig, NodeType
from rayfleet.cluster.head import HeadAddress
from rayfleet.errors import Unreachable
from rayfleet.fleet.model import Auth, Cluster, Provider, Ssh
from rayfleet.rollout.gates.gate import GateTimes, Reading, Verdict
from rayfleet.rollout.gates.subject import Subject, Wanted
from tests.unit.job.canned import FakeClock, row

DIGEST = "sha256:" + "a" * 64
SESSION = "session_2026-11-21_16-37-43_933460_73"
HEAD_ID = "f" * 56
REPORT = """\
======== Autoscaler status: 2026-11-21 16:40:01.164310 ========
Node status
---------------------------------------------------------------
Active:
 (no active nodes)
Idle:
 1 head_default
Pending:
{pending}
Recent failures:
{failures}

Resources
---------------------------------------------------------------
Total Usage:
 0.0/1.0 head_node
Pending Demands:
 (no resource demands)"""

CLUSTER = Cluster(
    name="us-east5",
    identity="marin-us-east5",
    provider=Provider.GCP,
    region="us-east5",
    zone="us-east5-b",
    accelerator="v6e",
    bucket="marin-us-east5",
    image="cluster",
    template="gcp.yaml.j2",
    workers={},
    max_workers=8,
    ssh=Ssh(),
    auth=Auth(),
)


def config_of(
    minimum: Mapping[str, int], *kinds: NodeType, image: str = f"host/repo/name:tag@{DIGEST}"
) -> LaunchConfig:
    return LaunchConfig(
        path=Path("us-east5.yaml"),
        identity="marin-us-east5",
        provider={},
        image=image,
        min_workers=minimum,
        hash="c" * 64,
        node_types=kinds,
    )


def node_row(kind: str, *, slice_name: str = "", head: bool = False) -> dict[str, Any]:
    """A live node as Ray 2.60 lists it."""
    labels = {"ray.io/node-group": kind}
    if slice_name:
        labels["ray.io/tpu-slice-name"] = slice_name
    return {
        "node_id": HEAD_ID,
        "is_head_node": head,
        "state": "ALIVE",
        "resources_total": {"CPU": 1.0},
        "labels": labels,
    }


@dataclass
class FakeRay:
    """The dashboard of a head. ``statuses`` are what a submitted job goes through, one for each
    time that it is asked for; ``error`` is its error type if it fails."""

    token: str = ""
    up: bool = True
    gcs: bool = True
    agent: bool = True
    version: dict[str, Any] = field(
        default_factory=lambda: {"ray_version": "2.60.0", "session_name": SESSION}
    )
    nodes: list[dict[str, Any]] = field(
        default_factory=lambda: [node_row("head_default", head=True)]
    )
    pending: Sequence[str] = (" (no pending nodes)",)
    failures: Sequence[str] = (" (no failures)",)
    report: str | None = REPORT
    statuses: list[str] = field(default_factory=lambda: ["PENDING", "RUNNING", "SUCCEEDED"])
    error: str | None = None
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Any:
        self.calls.append(f"{method} {path}")
        if not self.up:
            raise urllib3.exceptions.ProtocolError("Connection aborted.")
        if path == "/api/gcs_healthz":  # the one that needs no token
            return (200, "success") if self.gcs else (503, "GCS health check failed")
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return (403 if "Authorization" in headers else 401, "no")
        if path.startswith("/api/jobs"):
            return self._job(method, unquote(path.removeprefix("/api/jobs/")), body)
        if path.startswith("/api/v0/logs"):
            return (200, "{}") if self.agent else (500, "Server got itself in trouble")
        return (200, json.dumps(self._document(path)))

    def _document(self, path: str) -> object:
        if path == "/api/version":
            return self.version
        if path.startswith("/api/v0/nodes"):
            return {"data": {"result": {"result": self.nodes}}}
        assert path == "/api/cluster_status?format=1"
        text = self.report and self.report.format(
            pending="\n".join(self.pending), failures="\n".join(self.failures)
        )
        return {"data": {"clusterStatus": text}}

    def _job(self, method: str, name: str, body: Any) -> Any:
        if method == "POST" and not name:
            if not self.agent:
                return (500, "No available agent to submit job, please try again later.")
            asked = json.loads(body)
            self.jobs[asked["submission_id"]] = row(
                status="PENDING",
                **{key: asked[key] for key in ("submission_id", "entrypoint", "metadata")},
            )
            return (200, json.dumps({"submission_id": asked["submission_id"]}))
        if not name:
            return (200, json.dumps(list(self.jobs.values())))
        name, _, verb = name.partition("/")
        if name not in self.jobs:
            return (404, f"Job {name} does not exist")
        job = self.jobs[name]
        if verb == "stop":
            job["status"] = "STOPPED"
            return (200, json.dumps({"stopped": True}))
        if method == "DELETE":
            del self.jobs[name]
            return (200, json.dumps({"deleted": True}))
        if self.statuses:
            job["status"] = self.statuses.pop(0)
            job["error_type"] = self.error if job["status"] == "FAILED" else None
        return (200, json.dumps(job))


class RayPool(urllib3.HTTPConnectionPool):
    """HTTP to a FakeRay."""

    def __init__(self, ray: FakeRay) -> None:
        super().__init__("127.0.0.1", 1)
        self.ray = ray

    def urlopen(self, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]
        """Answer one request."""
        status, text = self.ray.answer(method, url, options["headers"], options.get("body"))
        return urllib3.HTTPResponse(body=io.BytesIO(text.encode()), status=status)


@dataclass
class FakeHead:
    """A connection to a head. ``gcs`` has the age of each GCS process, ``record`` what the head
    was started with, ``image`` the image of Ray's container and ``ray`` what that says it has."""

    ray: FakeRay
    gcs: Sequence[tuple[int, str]] = ((30, f"/ray/gcs_server --session-name={SESSION} --x"),)
    record: str = '{"config": "' + "c" * 64 + '"}'
    image: str = ""
    image_ray: str = "2.60.0"
    autoscaler: bool = True
    answers: bool = True
    alive: bool = True
    closed: int = 0
    address: HeadAddress = field(
        default_factory=lambda: HeadAddress(
            cluster="us-east5",
            host="10.0.0.1",
            user="ray",
            private_key=None,
            known_hosts=Path("known_hosts"),
            alias="marin-us-east5",
        )
    )

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """Answer the two commands that gates run."""
        if not self.answers:
            raise Unreachable("us-east5: the connection was lost")
        if "started.json" in command:
            return CommandResult(code=0 if self.record else 1, stdout=self.record, stderr="")
        assert timeout > 0
        lines = ["Welcome to this machine!"]
        lines += [f"rayfleet-gate image {self.image}"] if self.image else []
        lines += [f'rayfleet-gate record {{"tag": "t", "ray": "{self.image_ray}"}}']
        lines += [f"rayfleet-gate gcs {age:>7} {line}" for age, line in self.gcs]
        lines += [f"rayfleet-gate autoscaler {int(self.autoscaler)}", "rayfleet-gate end"]
        return CommandResult(code=0, stdout="\n".join(lines) + "\n", stderr="")

    def http(self, port: int) -> RayPool:
        """The dashboard."""
        assert port == 8265
        return RayPool(self.ray)

    def close(self) -> None:
        """Count it."""
        self.closed += 1
        self.alive = False


def subject_of(
    ray: FakeRay | None = None,
    head: FakeHead | None = None,
    *,
    config: LaunchConfig | None = None,
    before: Mapping[str, int] | None = None,
    emptied: float | None = None,
    token: str | None = None,
    clock: FakeClock | None = None,
    vm: str = "",
    rollout: str = "r1",
) -> Subject:
    """A subject whose head and Ray are fakes. ``vm`` is the digest that the cloud knows."""
    head = head or FakeHead(ray or FakeRay())
    clock = clock or FakeClock(now=1000.0)
    wanted = Wanted(
        rollout=rollout,
        cluster=CLUSTER,
        config=config or config_of({}),
        before=before or {},
        emptied=emptied,
    )
    return Subject(
        wanted,
        lambda: head,  # type: ignore[arg-type, return-value]
        token=token,
        image_digest=lambda: vm,
        now=clock.monotonic,
    )


@dataclass
class Scripted:
    """A gate that says what the script says at the time; keeps when it was asked."""

    name: str
    script: Callable[[float], Reading | Exception]
    clock: FakeClock
    needs: tuple[str, ...] = ()
    asked: list[float] = field(default_factory=list)
    closed: int = 0

    def check(self, subject: Subject) -> Reading:
        """Say it."""
        assert subject.name == "us-east5"
        self.asked.append(self.clock.now)
        said = self.script(self.clock.now)
        if isinstance(said, Exception):
            raise said
        return said

    def close(self, subject: Subject) -> None:
        """Count it."""
        assert subject.name == "us-east5"
        self.closed += 1


def opens_at(moment: float, before: Verdict = Verdict.NOT_YET) -> Callable[[float], Reading]:
    """A script: ``before`` until ``moment``, then yes."""
    return lambda now: (
        Reading(Verdict.PASS, "well") if now >= moment else Reading(before, "not well")
    )


SECOND = GateTimes(interval=1.0, timeout=60.0)
