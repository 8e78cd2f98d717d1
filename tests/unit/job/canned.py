"""A dashboard that answers from a list, and a clock that does not wait."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import urllib3

ROW: dict[str, Any] = {
    "type": "SUBMISSION",
    "job_id": None,
    "submission_id": "s1",
    "driver_info": None,
    "status": "RUNNING",
    "entrypoint": "python x.py",
    "message": "Job is currently running.",
    "error_type": None,
    "start_time": 1_700_000_000_500,
    "end_time": None,
    "metadata": {"owner": "me@here"},
    "runtime_env": {"env_vars": {"API_KEY": "hunter2"}},
    "driver_agent_http_address": "http://10.0.0.1:52365",
    "driver_node_id": "abc",
    "driver_exit_code": None,
}


def row(**changes: object) -> dict[str, Any]:
    """One job as Ray 2.60 lists it."""
    return ROW | changes


@dataclass(frozen=True)
class Canned:
    """What the next request gets: a status and text, or ``cut``: the connection breaks."""

    status: int = 200
    text: str = ""
    cut: bool = False


def answer(document: object) -> Canned:
    """200 with a JSON document."""
    return Canned(text=json.dumps(document))


CUT = Canned(cut=True)


class CannedPool(urllib3.HTTPConnectionPool):
    """Gives ``answers`` in turn and keeps (method, path, headers, body) of each request."""

    def __init__(self, answers: Sequence[Canned]) -> None:
        super().__init__("127.0.0.1", 1)
        self.answers = list(answers)
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    @property
    def calls(self) -> list[str]:
        """What was asked, as "METHOD path"."""
        return [f"{method} {path}" for method, path, _, _ in self.requests]

    def urlopen(self, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]
        """Answer one request."""
        self.requests.append((method, url, dict(options["headers"]), options.get("body")))
        assert self.answers, f"nobody expected {method} {url}"
        canned = self.answers.pop(0)
        if canned.cut:
            raise urllib3.exceptions.ProtocolError("Connection aborted.")
        return urllib3.HTTPResponse(body=io.BytesIO(canned.text.encode()), status=canned.status)


@dataclass
class FakeClock:
    """Time that passes only when somebody sleeps."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self.slept.append(seconds)
        self.now += seconds
