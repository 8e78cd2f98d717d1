"""The dashboard of a Ray head in memory: its HTTP API for jobs as Ray 2.60 serves it, and faults.

`tests/integration/job/test_contract.py` holds it against a real head.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import urllib3

from tests.unit.job.canned import FakeClock, row

EPOCH = 1_700_000_000_000
HOUR = 3_600_000  # by the head's clock it is later than what tests write down as past
CPUS = 1
GONE = "GONE"
NO_AGENT = "No available agent to submit job, please try again later."
ENDED = {"SUCCEEDED", "FAILED", "STOPPED"}
PACKAGES = "/api/packages/gcs/"


@dataclass(frozen=True)
class Moment:
    """What a job is, and has printed, from ``at`` seconds of its life on."""

    at: float
    status: str
    log: str = ""


@dataclass
class FakeJob:
    """A job; with ``life`` it goes as that says, else as its ``body`` lets it."""

    body: Mapping[str, Any]
    born: float = 0.0
    life: tuple[Moment, ...] = ()
    stopped: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Fault:
    """Requests of which "METHOD path" begins with the expression ``on``, and ``skip`` of which
    are let through, are answered with ``status`` and ``text`` (0: the connection breaks),
    ``times`` of them; the ``late`` take effect before."""

    on: str = ""
    status: int = 0
    text: str = ""
    times: int = 1
    skip: int = 0
    late: bool = False

    def meets(self, call: str) -> bool:
        """Whether this request is one of those; it counts."""
        if not re.match(self.on, call) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class Refused(Exception):
    """The API says no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class FakeDashboard(urllib3.HTTPConnectionPool):
    """Keeps jobs and packages. ``requests`` are (method, path, headers) of all that came."""

    def __init__(
        self,
        *faults: Fault,
        clock: FakeClock | None = None,
        token: str = "",
        start_seconds: float = 0.0,
        loses_packages: bool = False,
        nodes: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__("127.0.0.1", 1)
        self.clock = clock or FakeClock()
        self.faults = list(faults)
        self.token = token
        self.start_seconds = start_seconds
        self.loses_packages = loses_packages
        self.nodes = list(nodes)
        self.jobs: dict[str, FakeJob] = {}
        self.packages: set[str] = set()
        self.submitted: list[Mapping[str, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    @property
    def calls(self) -> list[str]:
        """What was asked, as "METHOD path"."""
        return [f"{method} {path}" for method, path, _ in self.requests]

    def has(
        self, name: str = "s1", *life: Moment, entrypoint: str = "python x.py", **row: Any
    ) -> None:
        """Let a job be there. ``row`` are fields of its row in the list."""
        body = {"submission_id": name, "entrypoint": entrypoint, "metadata": {"owner": "me@here"}}
        life = life or (Moment(0, "RUNNING"),)
        self.jobs[name] = FakeJob(body, born=self.clock.now, life=life, fields=row)

    def urlopen(self, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]
        """Answer one request."""
        headers, body = dict(options["headers"]), options.get("body")
        self.requests.append((method, url, headers))
        fault = next((each for each in self.faults if each.meets(f"{method} {url}")), None)
        if fault is None or fault.late:
            try:
                status, text = 200, self._answer(method, url, headers, body)
            except Refused as error:
                status, text = error.status, error.text
        if fault is not None:
            if not fault.status:
                raise urllib3.exceptions.ProtocolError("Connection aborted.")
            status, text = fault.status, fault.text
        return urllib3.HTTPResponse(body=io.BytesIO(text.encode()), status=status)

    def _answer(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> str:
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            given = "Authorization" in headers
            raise Refused(403 if given else 401, "Forbidden" if given else "Unauthorized")
        path = url.partition("?")[0]
        if path.startswith(PACKAGES):
            return self._package(method, unquote(path.removeprefix(PACKAGES)))
        match method, path.split("/")[2:]:
            case "GET", ["version"]:
                return json.dumps({"ray_version": "2.60.0"})
            case "GET", ["v0", "nodes"]:
                return json.dumps({"data": {"result": {"result": self.nodes}}})
            case "GET", ["jobs", ""]:
                return json.dumps([self._row(name) for name in self._there()])
            case "POST", ["jobs", ""]:
                return self._submit(json.loads(body))
            case "GET", ["jobs", name]:
                return json.dumps(self._row(self._known(name)))
            case "DELETE", ["jobs", name]:
                return self._delete(self._known(name))
            case "GET", ["jobs", name, "logs"]:
                return json.dumps({"logs": self._moment(self._known(name)).log})
            case "POST", ["jobs", name, "stop"]:
                return self._stop(self._known(name))
        raise Refused(405, f"405: {method} {url}")

    def _there(self) -> list[str]:
        return [name for name in self.jobs if self._moment(name).status != GONE]

    def _known(self, quoted: str) -> str:
        name = unquote(quoted)
        if name not in self._there():
            raise Refused(404, f"Job {name} does not exist")
        return name

    def _submit(self, body: Mapping[str, Any]) -> str:
        name = body["submission_id"]
        if name in self._there():
            raise Refused(
                500,
                "Traceback (most recent call last):\n  File ...\nRuntimeError: Request failed with "
                "status code 400: Traceback (most recent call last):\nValueError: Job with "
                f"submission_id {name} already exists. Please use a different submission_id.\n.",
            )
        self.submitted.append(body)
        self.jobs[name] = FakeJob(body, born=self.clock.now)
        return json.dumps({"job_id": name, "submission_id": name})

    def _delete(self, name: str) -> str:
        status = self._moment(name).status
        if status not in ENDED:
            text = f"RuntimeError: Attempted to delete job '{name}', but it is in a non-terminal"
            raise Refused(500, f"Traceback (most recent call last):\n{text} state {status}.\n.")
        del self.jobs[name]
        return json.dumps({"deleted": True})

    def _stop(self, name: str) -> str:
        runs = self._moment(name).status == "RUNNING"
        self.jobs[name].stopped |= runs
        return json.dumps({"stopped": runs})

    def _package(self, method: str, name: str) -> str:
        if method == "PUT":
            if not self.loses_packages:
                self.packages.add(name)
        elif name not in self.packages:
            raise Refused(404, f"Package gcs://{name} does not exist")
        return ""

    def _moment(self, name: str) -> Moment:
        job = self.jobs[name]
        age = self.clock.now - job.born
        if job.stopped:
            return Moment(age, "STOPPED")
        if job.life:
            return [each for each in job.life if each.at <= age][-1]
        if age < self.start_seconds or (job.body.get("entrypoint_num_cpus") or 0) > CPUS:
            return Moment(0, "PENDING")
        return Moment(age, "FAILED" if self._missing(job) else "RUNNING")

    def _missing(self, job: FakeJob) -> str:
        uri = (job.body.get("runtime_env") or {}).get("working_dir", "")
        return "" if uri.removeprefix("gcs://") in self.packages else uri

    def _row(self, name: str) -> dict[str, Any]:
        job, status = self.jobs[name], self._moment(name).status
        given = row(
            submission_id=name,
            status=status,
            entrypoint=job.body["entrypoint"],
            metadata=job.body.get("metadata") or {},
            runtime_env=job.body.get("runtime_env") or {},
            start_time=EPOCH + HOUR + int(job.born * 1000),
        )
        if status == "FAILED" and self._missing(job):
            message = f"Failed to set up runtime environment: no {self._missing(job)}"
            given |= {"error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": message}
        return given | dict(job.fields)
