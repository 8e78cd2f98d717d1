"""What the page says of each cluster: asked again and again, over one connection per head."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rayfleet.cluster.health import DASHBOARD_PORT, Observed, live_nodes, ray_version
from rayfleet.errors import RayfleetError
from rayfleet.rollout.progress import Progress
from rayfleet.secret.credential import Token

if TYPE_CHECKING:
    from paramiko import Channel
    from urllib3 import HTTPConnectionPool

    from rayfleet.cluster.config import LaunchConfig
    from rayfleet.cluster.head import Head

LOOK_SECONDS = 10.0  # between two looks at a head that answers
SHORTEST_SECONDS = 0.5  # between any two looks, however many tabs wait for one
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0
DIAL_SECONDS = 10.0
LOOKS_AT_ONCE = 16
SILENT_LOOKS = 3  # without an answer, until the connection itself is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A cluster of the page and the way to it.

    ``connect`` gives the open connection to its head, a new one when that was lost; ``port``
    is the dashboard's on the head. ``config`` reads what it was to be; both raise
    RayfleetError. ``rollout`` tells of the unfinished rollout that it is part of.
    """

    cluster: str
    region: str
    zone: str
    connect: Callable[[], Head]
    token: Token
    config: Callable[[], LaunchConfig]
    port: int = DASHBOARD_PORT
    rollout: Callable[[], Progress | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at the last look; ``seen`` None means that there was none yet. ``rollout``
    is what changes the cluster now."""

    place: Place
    seen: Observed | None = None
    next_step: str = ""
    rollout: Progress | None = None

    @property
    def answers(self) -> bool:
        """Whether the dashboard answered."""
        return self.seen is not None and self.seen.answers

    @property
    def failed(self) -> bool:
        """Whether the last look found no dashboard, or one that refuses us."""
        return self.seen is not None and not self.seen.answers

    @property
    def word(self) -> str:
        """The state in a word: connecting, unreachable, healthy, unhealthy, or what a rollout is
        doing with it."""
        if self.seen is None:
            return "connecting"
        if self.rollout is not None:
            return self.rollout.word
        return self.seen.word() if self.seen.answers else "unreachable"

    @property
    def trouble(self) -> str:
        """What is wrong, or which rollout changes it, in one line; empty when nothing is."""
        if self.seen is None:
            return ""
        if self.rollout is not None:
            return self.rollout.text
        said = "; ".join(self.seen.failing()) if self.seen.answers else self.seen.problem
        return said.removeprefix(f"{self.place.cluster}: ")


@dataclass
class Watcher:
    """Keeps the connection to one head and looks at it until it is closed.

    ``changed`` hears of every look that differs from the one before, in the watcher's thread;
    ``limit`` bounds how many watchers look at once.
    """

    place: Place
    changed: Callable[[Look, Look], None]
    limit: threading.Semaphore
    look: Look = field(init=False)
    _wake: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _failures: int = 0
    _http: tuple[Head, HTTPConnectionPool] | None = None

    def __post_init__(self) -> None:
        self.look = Look(place=self.place)

    def start(self) -> None:
        """Begin to look, in a thread of its own."""
        name = f"watch-{self.place.cluster}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def hurry(self) -> None:
        """Look now: somebody waits for it."""
        self._wake.set()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._wake.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            with self.limit:
                if self._closed.is_set():
                    return
                now = self._in_hand(self._looked())
            before, self.look = self.look, now
            if now != before and not self._closed.is_set():
                self.changed(before, now)
            self._failures = 0 if now.answers else self._failures + 1
            self._closed.wait(SHORTEST_SECONDS)
            self._wake.wait(self._pause())
            self._wake.clear()

    def _pause(self) -> float:
        if not self._failures:
            return LOOK_SECONDS
        longest = min(FIRST_RETRY_SECONDS * 2.0**self._failures, LAST_RETRY_SECONDS)
        return random.uniform(longest / 2, longest)  # noqa: S311 (spreads load, guards nothing)

    def _looked(self) -> Look:
        seen = Observed(cluster=self.place.cluster)
        try:
            token = self.place.token
            http = self._pool(self.place.connect())
            config = self.place.config()
            seen = Observed(
                cluster=self.place.cluster,
                head=self.place.cluster,
                ray_version=ray_version(http, token),
                wanted_workers=config.min_workers,
            ).with_workers(live_nodes(http, token), config.node_types)
            return Look(place=self.place, seen=seen)
        except RayfleetError as error:
            self._give_up_if_silent()
            why = f"{error.what}: {error.why}" if error.why else error.what
            problem = Observed(cluster=self.place.cluster, problem=why)
            return Look(place=self.place, seen=problem, next_step=error.next_step)

    def _in_hand(self, look: Look) -> Look:
        """The look, with the rollout that is changing the cluster now."""
        try:
            rollout = self.place.rollout()
        except RayfleetError:
            return look  # whatever keeps us from reading leases, the cluster was seen
        if rollout is None or not rollout.running:
            return look
        return replace(look, rollout=rollout, next_step=rollout.next_step)

    def _pool(self, head: Head) -> HTTPConnectionPool:
        if self._http is None or self._http[0] is not head:
            self._http = (head, head.http(self.place.port))
        return self._http[1]

    def _give_up_if_silent(self) -> None:
        # A connection may be open and lead nowhere, as after a laptop slept.
        if self._http is not None and (self._failures + 1) % SILENT_LOOKS == 0:
            self._http[0].close()
            self._http = None


def dialled(place: Place) -> Callable[[], Channel]:
    """A function that opens a channel to the dashboard of ``place``."""
    return lambda: place.connect().port(place.port, timeout=DIAL_SECONDS)
