"""The emulated Google Cloud for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayfleet.emulator import guest, happenings
from rayfleet.emulator.account import environment, write_account
from rayfleet.emulator.clock import EmulatedClock
from rayfleet.emulator.cloud import Cloud
from rayfleet.emulator.faults import Fault
from rayfleet.emulator.server import Seen, Server

PROJECT = "hai-gcp-models"
STEP = 60.0  # seconds of the cloud per request: who polls an operation once finds it done


@dataclass(frozen=True, kw_only=True)
class Google:
    """A running emulator. ``environment`` leads a process to it."""

    cloud: Cloud
    server: Server
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        """``http://127.0.0.1:port``."""
        return self.server.url

    @property
    def clock(self) -> CloudClock:
        """For the ``clock`` of what waits."""
        return CloudClock(self.cloud)

    def provider(self, provider: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The ``provider`` section of a config, for the emulator; ``more`` is added."""
        return provider_at(self.url, provider, **more)

    def inject(self, method: str, **fault: Any) -> Fault:
        """Let calls of ``method`` go wrong: see :class:`Fault`."""
        with self.cloud.lock:
            return self.cloud.faults.add(Fault(method=method, **fault))

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        with self.cloud.lock:
            self.cloud.faults.clear()

    def advance(self, seconds: float) -> None:
        """Let time pass in the cloud."""
        happenings.advance(self.cloud, seconds)

    def preempt(self, name: str) -> None:
        """Take a spot machine or slice back."""
        happenings.preempt(self.cloud, name)

    def write(self, name: str, key: str, value: str, *, worker: int = 0) -> bool:
        """Let a machine write a guest attribute, if its metadata lets it."""
        return guest.write(self.cloud, name, key, value, worker=worker)

    def states(self, table: str) -> dict[str, str]:
        """What there is of ``instances``, ``nodes`` or ``queuedResources``: the state by the last
        part of the name."""
        with self.cloud.lock:
            rows = dict(self.cloud.state.table(table))
            field = {"instances": "status", "nodes": "state"}.get(table)
            return {
                name.rpartition("/")[2]: row["view"][field]
                if field
                else row["view"]["state"]["state"]
                for name, row in rows.items()
            }

    def seen(self, method: str = "") -> list[Seen]:
        """The requests so far, or those of one method."""
        return [seen for seen in list(self.server.seen) if method in ("", seen.method)]


def provider_at(url: str, provider: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The ``provider`` section of a config, for the emulator at ``url``; ``more`` is added."""
    module = "rayfleet.emulator.provider.EmulatedProvider"
    return {**provider, "type": "external", "module": module, "emulator": url, **more}


@dataclass
class CloudClock:
    """For those who wait for the cloud: nobody sleeps, and its clock moves on meanwhile."""

    cloud: Cloud
    slept: float = 0.0

    def monotonic(self) -> float:
        """The seconds that were waited."""
        return self.slept

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        with self.cloud.lock:
            self.slept += seconds
        happenings.advance(self.cloud, seconds)


@contextmanager
def google_cloud(
    folder: Path, *, project: str = PROJECT, step: float = STEP, port: int = 0
) -> Iterator[Google]:
    """Run an emulator whose state is kept in ``folder``, for the block."""
    with Server(Cloud.open(project, folder, EmulatedClock(step=step)), port) as server:
        account = folder / "account.json"
        write_account(account, server.url, project)
        variables = environment(server.url, project, account)
        yield Google(cloud=server.cloud, server=server, environment=variables)


@pytest.fixture(scope="session")
def google_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Google]:
    """The emulator that the tests of this process take turns with: Google's clients are costly
    to make, and are kept by the address that they are for."""
    with google_cloud(tmp_path_factory.mktemp("google")) as running:
        yield running


@pytest.fixture
def google(
    google_server: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Google]:
    """An emulated Google Cloud of its own that this process takes for the real one."""
    server, variables = google_server.server, google_server.environment
    cloud = Cloud.open(PROJECT, tmp_path / "google", EmulatedClock(step=STEP))
    server.turn_to(cloud)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield Google(cloud=cloud, server=server, environment=variables)
    server.turn_to(google_server.cloud)
