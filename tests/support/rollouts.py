"""Operators that carry out rollouts: their events as they come, Ctrl-C, and SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rayfleet.sandbox.vm import CLUSTER_LABEL, SANDBOX_LABEL, TAG_PREFIX, TAGS_FILE, untar
from tests.support.sandbox import TIMEOUT, Ran, SandboxCli

Event = Mapping[str, Any]
HEAD_KIND = {f"{TAG_PREFIX}ray-node-type": "head"}
END_SECONDS = 30.0
SET_UP = ("setting-up", "up-to-date")


class Operator:
    """A task with ``--json`` in a terminal of its own; ``events`` are what it has printed."""

    def __init__(self, cli: SandboxCli, *argv: str) -> None:
        self.argv = argv
        self.events: list[Event] = []
        self._told = threading.Condition()
        self._process = cli.start(*argv, "--json")
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        self._listener.start()

    def __enter__(self) -> Operator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def until(self, kind: str, *, cluster: str = "", step: str = "", **data: object) -> Event:
        """Wait for an event and return it; ``data`` is what its own data must have.

        Raises:
            AssertionError: the task ended, or ten minutes passed, without it.
        """
        for event in self.follow():
            if event["kind"] != kind or cluster not in ("", event.get("cluster")):
                continue
            if step in ("", event.get("step")) and data.items() <= event.get("data", {}).items():
                return event
        raise AssertionError(f"{self.argv}: no {kind} of {cluster} {step}:\n{self.said}")

    def follow(self) -> Iterator[Event]:
        """The events from the first on, as they come, until the task ends."""
        position, deadline = 0, time.monotonic() + TIMEOUT
        while True:
            with self._told:
                self._told.wait_for(
                    lambda position=position: (
                        len(self.events) > position or not self._reader.is_alive()
                    ),
                    timeout=1.0,
                )
                fresh = self.events[position:]
            if not fresh and not self._reader.is_alive():
                return
            assert time.monotonic() < deadline, f"{self.argv} hangs:\n{self.said}"
            position += len(fresh)
            yield from fresh

    def kill(self) -> None:
        """SIGKILL it and its children; nothing happens when it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=END_SECONDS)
        self._join()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Hold it and its children still while the block runs."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def interrupt(self) -> None:
        """Ctrl-C in its terminal."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> Ran:
        """Wait until it ends by itself."""
        try:
            code = self._process.wait(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.argv} hangs:\n{self.said}") from None
        self._join()
        said = self.said
        assert "Traceback" not in said, said
        return Ran(code, "".join(json.dumps(event) + "\n" for event in self.events), said)

    @property
    def summary(self) -> Event:
        """The last line."""
        assert self.events[-1]["kind"] == "summary", self.events[-1]
        return self.events[-1]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                # A killed one may have printed half a line.
                with suppress(ValueError), self._told:
                    self.events.append(json.loads(line))
                    self._told.notify_all()
        with self._told:
            self._told.notify_all()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.append(line)

    def _join(self) -> None:
        self._reader.join(timeout=END_SECONDS)
        self._listener.join(timeout=END_SECONDS)

    @property
    def said(self) -> str:
        """What it has narrated so far."""
        return "".join(self._lines)


def journal(cli: SandboxCli, rollout: str) -> list[Event]:
    """The records of a rollout."""
    lines = (folder_of(cli, rollout) / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def folder_of(cli: SandboxCli, rollout: str) -> Path:
    """Where a rollout is on the disk."""
    return cli.state / "rollouts" / rollout


def latest(cli: SandboxCli, cluster: str) -> str:
    """The id of the newest rollout that has ``cluster``."""
    for folder in sorted((cli.state / "rollouts").iterdir(), reverse=True):
        plan = folder / "plan.json"
        if plan.is_file() and cluster in json.loads(plan.read_text())["targets"]:
            return folder.name
    raise AssertionError(f"no rollout has {cluster}")


class HeadWatch:
    """``made`` names the heads of each cluster that have started to run since it began."""

    def __init__(self, cli: SandboxCli) -> None:
        self.made: dict[str, list[str]] = {}
        labels = [f"{SANDBOX_LABEL}={cli.place.id}"]
        labels += [f"{key}={value}" for key, value in HEAD_KIND.items()]
        self._stream = cli.engine.client.events(
            decode=True, filters={"type": "container", "event": "start", "label": labels}
        )
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stream.close()
        self._thread.join(timeout=END_SECONDS)

    def _watch(self) -> None:
        for event in self._stream:
            seen = event["Actor"]["Attributes"]
            self.made.setdefault(seen[CLUSTER_LABEL], []).append(seen["name"])


@contextmanager
def head_watch(cli: SandboxCli) -> Iterator[HeadWatch]:
    """See every head that starts while the block runs."""
    watch = HeadWatch(cli)
    try:
        yield watch
    finally:
        watch.close()


def preempt(cli: SandboxCli, cluster: str) -> str:
    """Take a worker away as a cloud does, without notice; empty when there is none.

    One that was only just made stays: for ten minutes Ray's autoscaler would believe that it is
    still to come.
    """
    for row in cli.vms(cluster, "worker"):
        if row.state == "running" and _status(cli, row.name) in SET_UP:
            cli.engine.remove(row.name)
            return row.name
    return ""


def _status(cli: SandboxCli, node: str) -> str:
    """What Ray has noted of a node."""
    from docker.errors import APIError

    try:
        chunks, _ = cli.engine.client.containers.get(node).get_archive(TAGS_FILE)
    except APIError:
        return ""
    tags = json.loads(untar(b"".join(chunks)) or b"{}")
    return str(tags.get("ray-node-status", ""))
