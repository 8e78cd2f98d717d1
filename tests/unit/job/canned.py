"""A row of the jobs API, and a clock that does not wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
