"""The rollouts of a state folder: a folder each, with its plan, its configs and its journal."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from rayfleet.errors import Locked, UsageError
from rayfleet.files import ensure_private_folder, refusing, sync_folder
from rayfleet.locks import DYING_SECONDS, file_lock
from rayfleet.rollout.fold import fold
from rayfleet.rollout.journal.file import Journal
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Direction, Output, Plan, Step
from rayfleet.rollout.plan.document import NotAPlan, decode_plan, encode_plan
from rayfleet.rollout.state import State

SYNCS_AT_ONCE = 16
ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


def new_id(now: datetime) -> str:
    """An id for a rollout that is made ``now``; ids sort by time."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


class Rollout:
    """One rollout on the disk. ``folder`` is named like its ``id``."""

    def __init__(self, folder: Path, *, journal: Journal | None = None) -> None:
        self.id = folder.name
        self.folder = folder
        self.journal = journal or Journal(folder / "journal.jsonl")

    @cached_property
    def plan(self) -> Plan:
        """What was planned.

        Raises:
            UsageError: its document is damaged, or of a newer rayfleet.
            PrerequisiteMissing: it cannot be read.
        """
        path = self.folder / "plan.json"
        with refusing(path, action="read"):
            text = path.read_text()
        try:
            return decode_plan(text)
        except NotAPlan as error:
            raise UsageError(
                f"{path} is no plan", why=str(error), next_step="invoke rollouts.list"
            ) from error

    @property
    def configs(self) -> Path:
        """The folder of the configs that the rollout brings."""
        return self.folder / "configs"

    @property
    def previous(self) -> Path:
        """The folder of the configs that the clusters ran with before."""
        return self.folder / "previous"

    def records(self) -> tuple[Record, ...]:
        """What has happened so far; see :meth:`Journal.read`."""
        return self.journal.read()

    def state(self) -> State:
        """Where it stands."""
        return fold(self.plan, self.records())

    def append(
        self,
        kind: Kind,
        *,
        cluster: str = "",
        direction: Direction = Direction.FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> Record:
        """Write one record; see :meth:`Journal.append`."""
        return self.journal.append(kind, cluster=cluster, direction=direction, step=step, data=data)

    def running(self) -> bool:
        """Whether a living process drives it."""
        try:
            file = os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who look do not take each other for the driver.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    @contextmanager
    def drive(self) -> Iterator[None]:
        """Be the one process that carries it out, while the block runs.

        Raises:
            Locked: another process is; it is named.
            PrerequisiteMissing: the lock file cannot be made.
        """
        with ExitStack() as held:
            try:
                held.enter_context(
                    file_lock(self._lock, what=f"rollout {self.id}", timeout=DYING_SECONDS)
                )
            except Locked as error:
                raise Locked(
                    f"rollout {self.id} is carried out by another process",
                    why=driver(self.records()),
                    next_step=f"invoke rollouts.show {self.id}",
                ) from error
            yield

    @property
    def _lock(self) -> Path:
        return self.folder / "run.lock"


def driver(records: tuple[Record, ...]) -> str:
    """Who took up a rollout last, in words; empty when nobody did."""
    begun = next((record for record in reversed(records) if record.kind is Kind.BEGUN), None)
    if begun is None:
        return ""
    data = begun.data
    return (
        f"{data.get('by', 'somebody')}, process {data.get('pid', '?')} on"
        f" {data.get('host', '?')}, since {begun.at:%Y-%m-%d %H:%M:%S} UTC"
    )


def myself(operator: str) -> Output:
    """The ``data`` of a BEGUN record that this process writes."""
    return {"by": operator, "pid": os.getpid(), "host": socket.gethostname()}


class Rollouts:
    """All rollouts of a state folder."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "rollouts"

    def create(
        self, plan: Plan, configs: Mapping[str, bytes], previous: Mapping[str, bytes]
    ) -> Rollout:
        """Put a new rollout on the disk, whole or not at all.

        ``configs`` and ``previous`` are the generated configs by cluster, as wanted and as now.

        Raises:
            UsageError: there is one with this id.
            PrerequisiteMissing: the disk is full, or the folder cannot be written.
        """
        ensure_private_folder(self.folder)
        final = self.folder / plan.id
        files = {f"configs/{name}.yaml": raw for name, raw in configs.items()}
        files |= {f"previous/{name}.yaml": raw for name, raw in previous.items()}
        files |= {"plan.json": encode_plan(plan).encode(), "journal.jsonl": b""}
        with refusing(final):
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
            try:
                _fill(fresh, files)
                if final.exists():
                    raise UsageError(
                        f"there is a rollout {plan.id}", next_step=f"invoke rollouts.show {plan.id}"
                    )
                fresh.rename(final)
                sync_folder(self.folder)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
        return Rollout(final)

    def open(self, rollout_id: str = "") -> Rollout:
        """The rollout whose id begins with ``rollout_id``.

        Without one: the latest that is not finished, else the latest.

        Raises:
            UsageError: there is none, or several; or the latest is damaged.
        """
        found = [each for each in self.all() if each.id.startswith(rollout_id)]
        if not found:
            known = ", ".join(each.id for each in self.all()[:5])
            raise UsageError(
                f"there is no rollout {rollout_id}".rstrip(),
                why=f"the latest are {known}" if known else "there is none at all",
                next_step="invoke rollouts.list" if known else "invoke restart --all --dry-run",
            )
        if not rollout_id:
            return next((each for each in found if each.state().result is None), found[0])
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} rollouts begin with {rollout_id}",
                why=", ".join(each.id for each in found[:5]),
                next_step="invoke rollouts.list",
            )
        return found[0]

    def all(self) -> tuple[Rollout, ...]:
        """All rollouts, the newest first. Nothing of them is read yet: a damaged one says so
        when it is."""
        if not self.folder.is_dir():
            return ()
        with refusing(self.folder, action="read"):
            names = [each.name for each in self.folder.iterdir() if ID.fullmatch(each.name)]
        return tuple(Rollout(self.folder / name) for name in sorted(names, reverse=True))


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write ``files`` below the new ``folder``, only for its owner, synced."""
    for name in ("configs", "previous"):
        (folder / name).mkdir(mode=0o700)

    def write(name: str) -> None:
        with open(folder / name, "wb", opener=_private) as file:
            file.write(files[name])
            file.flush()
            os.fsync(file.fileno())

    # File systems sync several at once in about the time of one.
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
        list(pool.map(write, files))
    for name in ("configs", "previous", "."):
        sync_folder(folder / name)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
