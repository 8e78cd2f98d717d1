"""One publish, measured: time, processor time, what the registries saw, and that it is right."""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from publishing.images import Image
from publishing.methods import Job, Method
from publishing.processes import busy_seconds, processor_seconds
from publishing.registries import Registry, check
from rayfleet.process import must_run
from rayfleet.waiting import DeadlineExceeded, wait_until

RUN_SECONDS = 1800.0
# A registry writes the line of a request after it answered.
LOG_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run. Seconds of wall-clock time and of processors.

    ``seconds`` are those of the whole program, the start of its interpreter included. ``packed``
    is the size of the compressed layers in bytes. ``engine`` and ``client`` are processor time,
    ``foreign`` the processors that others kept busy meanwhile. ``twice`` counts the uploads that
    were not of a missing blob, or not the first of it. ``told`` is what the program wrote itself.
    """

    seconds: float
    packed: int
    engine: float
    client: float
    foreign: float
    requests: int
    uploads: int
    twice: int
    told: dict[str, Any] = field(repr=False)

    @property
    def cpu(self) -> float:
        """Processor time of engine and client together."""
        return self.engine + self.client


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Measures runs of any method. ``engine`` is dockerd's process id; ``servers`` gives those
    of the registries and links, whose work is nobody's."""

    engine: int
    servers: Callable[[], Sequence[int]]

    def measure(
        self,
        method: Method,
        image: Image,
        destinations: dict[str, str],
        registries: Sequence[Registry],
        folder: Path,
    ) -> Sample:
        """Publish ``image`` once and check the result.

        Raises:
            RayfleetError: the program failed.
            SystemExit: the registries do not hold what they should.
        """
        job = Job(image=image.name, destinations=destinations, tags=image.tags, folder=folder)
        command = method.program(job)
        job.result.unlink(missing_ok=True)
        for each in registries:
            each.log_mark()
        os.sync()  # what the run before left to write is none of this one's work
        before = self._read()
        begin = time.perf_counter()
        must_run(command, timeout=RUN_SECONDS, what=method.title, env=_environment(folder))
        seconds = time.perf_counter() - begin
        after = self._read()
        engine, client, others, busy = (b - a for a, b in zip(before, after, strict=True))
        told = json.loads(job.result.read_text()) if job.result.is_file() else {}
        packed, uploads, twice, requests = _traffic(registries, image)
        return Sample(
            seconds=seconds,
            packed=packed,
            engine=engine,
            client=client,
            foreign=max(0.0, busy - engine - client - others) / seconds,
            requests=requests,
            uploads=uploads,
            twice=twice,
            told=told,
        )

    def _read(self) -> tuple[float, float, float, float]:
        """Processor seconds so far: the engine's, of our ended children, of servers and us, all."""
        servers = sum(map(processor_seconds, self.servers()))
        return (
            processor_seconds(self.engine),
            _used(resource.RUSAGE_CHILDREN),
            servers + _used(resource.RUSAGE_SELF),
            busy_seconds(),
        )


def _used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _environment(folder: Path) -> dict[str, str]:
    """No configuration of the user's: a credential helper would be asked at every push."""
    empty = folder / "docker-config"
    empty.mkdir(exist_ok=True)
    return {**os.environ, "DOCKER_CONFIG": str(empty), "NO_PROXY": "127.0.0.1,localhost"}


def _traffic(registries: Sequence[Registry], image: Image) -> tuple[int, int, int, int]:
    """Check the result; the size of the compressed layers, how many uploads there were, how many
    of them needless, all requests."""
    manifest = check(registries, image.tags, image.diff_ids)
    total = needless = requests = 0
    for each in registries:
        missing = manifest.blobs - each.known
        uploads, count = _settled(each, missing)
        total += uploads.total()
        needless += uploads.total() - len(missing & uploads.keys())
        requests += count
        each.known |= manifest.blobs
    return manifest.packed, total, needless, requests


def _settled(registry: Registry, missing: frozenset[str]) -> tuple[Counter[str], int]:
    """What the access log has once it has the uploads of all ``missing`` blobs."""
    with suppress(DeadlineExceeded):
        wait_until(
            lambda: missing <= registry.log_since_mark()[0].keys(),
            what="the access log",
            timeout=LOG_SECONDS,
            interval=0.02,
        )
    return registry.log_since_mark()
