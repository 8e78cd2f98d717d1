"""Which rollout has a cluster: a lock while it changes it, and a lease for as long as it owes it
something, which outlives its process.

A lease is never taken from another rollout, however long that has been silent: its cluster may be
half changed, and its jobs in the vault.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rayfleet.errors import Locked
from rayfleet.files import refusing, write_atomically
from rayfleet.locks import exclusive

BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0
"""No sign of life for so long: its process was killed or its machine is gone."""


class Place(Protocol):
    """What holds the state folder: a Project."""

    @property
    def state(self) -> Path:
        """The state folder."""


class Holdable(Protocol):
    """What a lease is for: a Cluster, or just its names."""

    @property
    def name(self) -> str:
        """What operators type."""

    @property
    def identity(self) -> str:
        """Ray's name of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The two names of a cluster, where its configuration is not at hand."""

    name: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a rollout has on a cluster.

    ``id`` is another one each time that the cluster was free before. ``operator`` is
    ``user@host``; ``pid`` on ``host`` took it at ``acquired``. ``beat`` is its
    last sign of life, in seconds since 1970. ``running`` tells whether a living process of this
    machine changes the cluster now.
    """

    cluster: str
    rollout: str
    operator: str
    host: str
    pid: int
    acquired: datetime
    beat: float
    running: bool
    id: str = ""

    def stale(self, now: float) -> bool:
        """Whether nobody works on the cluster by this lease at ``now`` (seconds since 1970)."""
        return not self.running or now - self.beat > STALE_SECONDS

    def describe(self, now: float) -> str:
        """Whose it is, and since when it is silent."""
        whose = f"rollout {self.rollout} of {self.operator}, process {self.pid} on {self.host}"
        taken = f"since {self.acquired:%Y-%m-%d %H:%M:%S} UTC"
        if not self.stale(now):
            return f"{whose}, works on it {taken}"
        return f"{whose}, has it {taken} and gave its last sign of life {_ago(now - self.beat)} ago"

    def refusal(self, now: float) -> Locked:
        """The error for somebody else who wants to change the cluster."""
        show = f"invoke rollouts.show {self.rollout}"
        then = f"{show}, then: invoke rollouts.resume {self.rollout} (or retry, rollback, unlock)"
        return Locked(
            f"{self.cluster} belongs to a rollout that is not through with it",
            why=self.describe(now),
            next_step=then if self.stale(now) else show,
        )


@contextmanager
def hold_cluster(
    place: Place, cluster: Holdable, *, rollout: str, operator: str, beat: float = BEAT_SECONDS
) -> Iterator[str]:
    """Change ``cluster`` for the rollout with the id ``rollout`` while the block runs.

    ``beat`` is how often it gives a sign of life, in seconds. The lease stays when the block
    ends; see :func:`release_cluster`. Yields its id: the one of before if the rollout still had
    the cluster, so that nobody else can have changed it meanwhile.

    Raises:
        Locked: another run changes it, or another rollout has a lease, living or not.
        PrerequisiteMissing: the state folder cannot be written.
    """
    with _alone(place, cluster):
        lease = lease_of(place, cluster)
        if lease is not None and lease.rollout != rollout:
            raise _left(lease)
        path = _path(place.state, cluster.identity)
        lease_id = secrets.token_hex(8) if lease is None else lease.id
        document = {
            "id": lease_id,
            "cluster": cluster.name,
            "rollout": rollout,
            "operator": operator,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "acquired": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomically(path, json.dumps(document) + "\n", mode=0o600)
        with _heartbeat(path, beat):
            yield lease_id


@contextmanager
def free_cluster(place: Place, cluster: Holdable, *, next_step: str) -> Iterator[None]:
    """Change ``cluster`` outside of any rollout while the block runs.

    Raises:
        Locked: another run changes it, or a rollout has a lease, living or not.
        PrerequisiteMissing: the state folder cannot be written.
    """
    with _alone(place, cluster, next_step=next_step):
        lease = lease_of(place, cluster)
        if lease is not None:
            raise _left(lease)
        yield


def release_cluster(place: Place, cluster: Holdable, *, rollout: str = "") -> None:
    """End the lease on ``cluster``, if there is one of ``rollout`` (empty: of any).

    Raises:
        PrerequisiteMissing: the state folder cannot be written.
    """
    path = _path(place.state, cluster.identity)
    lease = lease_of(place, cluster)
    if lease is None or rollout not in {"", lease.rollout}:
        return
    with refusing(path, action="remove"):
        path.unlink(missing_ok=True)


def lease_of(place: Place, cluster: Holdable) -> Lease | None:
    """The lease on ``cluster``, None when there is none.

    A damaged one is a lease as well, of a rollout that is not known.

    Raises:
        PrerequisiteMissing: it cannot be read.
    """
    path = _path(place.state, cluster.identity)
    with refusing(path, action="read"):
        try:
            text, beat = path.read_text(errors="replace"), path.stat().st_mtime
        except FileNotFoundError:
            return None
    try:
        row = json.loads(text)
        acquired = datetime.fromisoformat(str(row["acquired"])).astimezone(UTC)
        pid = int(row["pid"])
    except (ValueError, KeyError, TypeError):
        row, acquired, pid = {}, datetime.fromtimestamp(beat, UTC), 0
    return Lease(
        cluster=cluster.name,
        rollout=str(row.get("rollout", "UNKNOWN")),
        operator=str(row.get("operator", "somebody")),
        host=str(row.get("host", "some machine")),
        pid=pid,
        acquired=acquired,
        beat=beat,
        running=_is_locked(place.state, cluster.identity),
        id=str(row.get("id", "")),
    )


def held_as(place: Place, name: str) -> tuple[Names, ...]:
    """The clusters called ``name`` that somebody has a lease on: it may be in no fleet file.

    Raises:
        PrerequisiteMissing: the leases cannot be read.
    """
    folder = place.state / "leases"
    found = []
    with refusing(folder, action="read"):
        for path in sorted(folder.glob("*.json")):
            with suppress(ValueError, AttributeError, FileNotFoundError):
                if json.loads(path.read_text(errors="replace")).get("cluster") == name:
                    found.append(Names(name=name, identity=path.stem))
    return tuple(found)


@contextmanager
def _alone(
    place: Place, cluster: Holdable, *, next_step: str = "invoke rollouts.list"
) -> Iterator[None]:
    """Hold the lock of ``cluster``; who has it is named by its lease, if it is a rollout."""
    with ExitStack() as held:
        try:
            lock = exclusive(place.state, _lock_name(cluster.identity), next_step=next_step)
            held.enter_context(lock)
        except Locked as error:
            lease = lease_of(place, cluster)
            if lease is None:
                raise
            raise lease.refusal(time.time()) from error
        yield


def _left(lease: Lease) -> Locked:
    """The refusal by a lease that nobody works by: it is we who have the lock."""
    return replace(lease, running=False).refusal(time.time())


@contextmanager
def _heartbeat(path: Path, seconds: float) -> Iterator[None]:
    """Touch the lease now and then while the block runs: that needs no space on the disk."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(seconds):
            with suppress(OSError):  # without a sign of life it is reported as stale
                os.utime(path)

    threading.Thread(target=beat, name=f"lease {path.stem}", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _path(state: Path, identity: str) -> Path:
    return state / "leases" / f"{identity}.json"


def _lock_name(identity: str) -> str:
    return f"cluster-{identity}"


def _is_locked(state: Path, identity: str) -> bool:
    try:
        file = os.open(state / "locks" / f"{_lock_name(identity)}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _ago(seconds: float) -> str:
    seconds = max(seconds, 0)
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
