"""The jobs of one cluster, over the REST API of its head (Ray 2.60, /api/jobs/)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from rayfleet.cluster.live import NODES, LiveNode, parse_nodes
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.job.dashboard import READ_ATTEMPTS, READ_SECONDS, Answer, Dashboard, retried
from rayfleet.job.log_position import LogPosition
from rayfleet.job.model import (
    Job,
    JobExists,
    JobLost,
    JobTimedOut,
    Submittable,
    UnknownJob,
    parse_job,
    parse_jobs,
)
from rayfleet.job.redaction import env_values, redacted, redacted_log
from rayfleet.secret.credential import Token
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

    from rayfleet.job.package import Package

AGENT_SECONDS = 90.0
"""How long a new head may take until its agent accepts jobs."""

READY_ATTEMPTS = 25

NODE_SECONDS = 20.0
"""How long a new head may take until it lists itself as a node (4 s on 2 busy cores)."""

_NO_AGENT = (
    "No available agent to submit job",
    # Python 3.10 tells asyncio's TimeoutError from its own, which Ray raises: a traceback.
    "Failed to get head node agent within",
    # The agent has registered and does not listen yet.
    "Cannot connect to host",
)
_UNKNOWN = "does not exist"


class _NotReady(Unreachable):
    """The head answers but accepts no jobs yet."""


class JobClient:
    """Submit, list and follow jobs of ``cluster``.

    ``http`` leads to the dashboard's port on the head, ``token`` is Ray's authentication
    token (None: the cluster has no authentication). Without ``patience`` nothing is tried
    twice, for callers that look again themselves; ``seconds`` is how long an answer may
    take. ``admit`` is called right before a job is submitted, and raises when the cluster must
    not get one. All methods raise
    :class:`~rayfleet.errors.Unreachable` when the head does not answer,
    :class:`~rayfleet.job.dashboard.Unauthorized` when it refuses the token, and
    :class:`~rayfleet.errors.ToolFailed` with the last line of what it said otherwise.
    """

    def __init__(
        self,
        http: HTTPConnectionPool,
        *,
        cluster: str,
        token: Token = None,
        clock: Clock | None = None,
        patience: bool = True,
        seconds: float = READ_SECONDS,
        admit: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = cluster
        self._reads = READ_ATTEMPTS if patience else 1
        self._until_ready = READY_ATTEMPTS if patience else 1
        self._dashboard = Dashboard(
            http, cluster=cluster, token=token, attempts=self._reads, seconds=seconds
        )
        self._clock = clock or SystemClock()
        self._admit = admit

    def __repr__(self) -> str:
        return f"JobClient(cluster={self.cluster!r})"

    def upload(self, package: Package) -> bool:
        """Bring ``package`` to the head before any job names it; False if it was there.

        A job submitted earlier than its package fails, and Ray then refuses the same
        runtime environment for ten minutes more, so the head is asked again at the end.
        """
        if self.has_package(package.name):
            return False
        with package.path.open("rb") as stream:
            answer = self._dashboard.put(_package_path(package.name), stream, size=package.size)
        if not answer.ok:
            raise self._dashboard.refusal(answer, f"upload {package.name}")
        if not self.has_package(package.name):
            raise ToolFailed(f"{self.cluster}: the head took {package.name} and lost it")
        return True

    def has_package(self, name: str) -> bool:
        """True when the head holds the package of that file name, ``_ray_pkg_….zip``.

        Asking also keeps it from being collected for ten minutes
        (RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S, Ray 2.60).
        """
        answer = self._dashboard.get(_package_path(name))
        if answer.status not in {200, 404}:
            raise self._dashboard.refusal(answer, f"ask for {name}")
        return answer.ok

    def submit(self, request: Submittable) -> str:
        """Submit ``request`` and return its submission id; the same request runs only once.

        Sent again when the answer got lost, and for up to 90 s while the head has no agent.

        Raises:
            JobExists: another job has the id.
            Unreachable: no answer; the message tells how to see whether the job runs.
        """
        try:
            return retried(
                lambda: retried(lambda: self._post(request), attempts=self._reads),
                attempts=self._until_ready,
                on=_NotReady,
                seconds=AGENT_SECONDS,
            )
        except _NotReady:
            raise
        except Unreachable as error:
            raise Unreachable(
                f"{self.cluster}: no answer whether it runs {request.submission_id}",
                why=error.why,
                next_step=f"invoke jobs.logs --cluster {self.cluster} {request.submission_id}",
            ) from error

    def delete(self, job_id: str) -> bool:
        """Make the head forget an ended job, so that its id is free; False if it knows none.

        Raises:
            ToolFailed: the job has not ended.
        """
        path = f"/api/jobs/{_quoted(job_id)}"
        answer = self._when_ready(lambda: self._dashboard.delete(path))
        if answer.status == 404 and _UNKNOWN in answer.text:
            return False
        self._read(answer, f"delete {job_id}")
        return True

    def stop(self, job_id: str) -> bool:
        """Ask a job to end, and return at once; False if none of its processes was there to ask.

        True tells nothing of how it goes on: a job that waits for resources goes on waiting.
        """
        path = f"/api/jobs/{_quoted(job_id)}/stop"
        answer = self._when_ready(lambda: self._dashboard.post(path, {}))
        self._must_know(answer, job_id)
        document = self._read(answer, f"stop {job_id}")
        return isinstance(document, Mapping) and document.get("stopped") is True

    def nodes(self) -> tuple[LiveNode, ...]:
        """The nodes that are up, the head among them; none if it does not list them yet."""

        def ask() -> tuple[LiveNode, ...]:
            found = parse_nodes(self._read(self._dashboard.get(NODES), "list the nodes"))
            if not found:
                raise _NotReady(f"{self.cluster}: the head lists no nodes yet")
            return found

        try:
            return retried(ask, attempts=self._until_ready, on=_NotReady, seconds=NODE_SECONDS)
        except _NotReady:
            return ()

    def list(self) -> tuple[Job, ...]:
        """All jobs that the head remembers, oldest first."""
        return parse_jobs(self._read(self._dashboard.get("/api/jobs/"), "list the jobs"))

    def running(self) -> tuple[Job, ...]:
        """The jobs that have not ended, drivers among them: a restart would kill these."""
        return tuple(job for job in self.list() if not job.ended)

    def get(self, job_id: str) -> Job:
        """The job of that submission id or job id.

        Raises:
            UnknownJob: the head knows no such job.
        """
        answer = self._dashboard.get(f"/api/jobs/{_quoted(job_id)}")
        self._must_know(answer, job_id)
        return parse_job(self._read(answer, f"look up {job_id}"))

    def get_known(self, job_id: str) -> Job:
        """The job of that id, which the head has told of before.

        Raises:
            JobLost: the head knows it no more.
        """
        try:
            return self.get(job_id)
        except UnknownJob as error:
            raise self._lost(job_id) from error

    def logs(self, job_id: str) -> str:
        """All that the job's entrypoint has printed so far.

        Raises:
            UnknownJob: the head knows no such job.
            ToolFailed: it is a DRIVER, which has no log here, or the log is not UTF-8.
        """
        answer = self._dashboard.get(f"/api/jobs/{_quoted(job_id)}/logs")
        self._must_know(answer, job_id)
        document = self._read(answer, f"read the log of {job_id}")
        if not isinstance(document, dict) or not isinstance(document.get("logs"), str):
            raise ToolFailed(f"{self.cluster}: the jobs API answered with no log")
        return str(document["logs"])

    def follow(
        self,
        job_id: str,
        *,
        timeout: float,
        interval: float = 1.0,
        position: LogPosition | None = None,
        notice: Callable[[str], None] = lambda text: None,
        read: bool = True,
    ) -> Iterator[str]:
        """Yield each line of the job's log once (none unless ``read``), until the job has ended.

        ``timeout`` and ``interval`` are seconds. The API has only whole logs, so the pauses
        grow with the time that a read takes. A log that the head cannot read does not hide
        how the job ends: ``notice`` hears of it and the job is watched on. A ``position`` of
        an earlier call goes on where that one broke off.

        Raises:
            UnknownJob: there is no such job.
            JobLost: the head had the job and has it no more.
            JobTimedOut: the job still runs after ``timeout``.
        """
        deadline = self._clock.monotonic() + timeout
        position = position or LogPosition()
        while True:
            began = self._clock.monotonic()
            job = self.get_known(job_id) if position.known else self.get(job_id)
            text = self._log_if_readable(job, notice) if read else None
            yield from position.unread(text, complete=job.ended)
            if job.ended:
                return
            now = position.contact = self._clock.monotonic()
            if now >= deadline:
                raise self._too_late(job, timeout)
            self._clock.sleep(max(interval, 5 * (now - began)))

    def _post(self, request: Submittable) -> str:
        document = request.document()
        self._admit()
        answer = self._dashboard.post("/api/jobs/", document)
        if answer.ok:
            return request.submission_id
        self._must_be_ready(answer)
        if f"{request.submission_id} already exists" not in answer.text:
            raise self._dashboard.refusal(
                answer, "submit the job", secrets=env_values(document.get("runtime_env"))
            )
        there = self.get(request.submission_id)
        if (there.entrypoint, there.metadata) != (request.entrypoint, request.metadata or {}):
            raise JobExists(
                f"{self.cluster} has another job of the id {request.submission_id}",
                why=f"it runs: {redacted(there.entrypoint)}",
            )
        return request.submission_id

    def _when_ready(self, call: Callable[[], Answer]) -> Answer:
        """``call``, which may be made twice, again until the head has an agent to do it."""

        def once() -> Answer:
            answer = retried(call, attempts=self._reads)
            self._must_be_ready(answer)
            return answer

        return retried(once, attempts=self._until_ready, on=_NotReady, seconds=AGENT_SECONDS)

    def _must_be_ready(self, answer: Answer) -> None:
        if not answer.ok and any(sign in answer.text for sign in _NO_AGENT):
            raise _NotReady(f"{self.cluster}: the head accepts no jobs yet", why=answer.reason)

    def _must_know(self, answer: Answer, job_id: str) -> None:
        if answer.status == 404 and _UNKNOWN in answer.text:
            raise UnknownJob(
                f"{self.cluster} knows no job {job_id}",
                next_step=f"invoke jobs.list --cluster {self.cluster}",
            )

    def _read(self, answer: Answer, doing: str) -> object:
        if not answer.ok:
            raise self._dashboard.refusal(answer, doing)
        return answer.json()

    def _log_if_readable(self, job: Job, notice: Callable[[str], None]) -> str | None:
        try:
            return redacted_log(self.logs(job.name), job.entrypoint)
        except UnknownJob as error:
            raise self._lost(job.name) from error
        except ToolFailed as error:
            # A character that is half written is one cause; it heals itself.
            if job.ended:
                notice(str(error))
            return None

    def _lost(self, job_id: str) -> JobLost:
        return JobLost(
            f"{self.cluster} has lost the job {job_id}",
            why="its head was restarted or replaced while the job ran",
            next_step="submit it again; an idempotent job goes on where it was",
        )

    def _too_late(self, job: Job, timeout: float) -> JobTimedOut:
        return JobTimedOut(
            f"{self.cluster}: {job.name} has not ended within {timeout:.0f} s",
            why=f"it is {job.status}; it was left running",
            next_step=f"invoke jobs.logs --cluster {self.cluster} {job.name} --follow",
        )


def _quoted(job_id: str) -> str:
    from urllib.parse import quote

    return quote(job_id, safe="")


def _package_path(name: str) -> str:
    return f"/api/packages/gcs/{_quoted(name)}"
