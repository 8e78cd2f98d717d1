"""Submit a job and stay with it to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rayfleet.errors import Unreachable
from rayfleet.job.client import JobClient
from rayfleet.job.fit import require_fit
from rayfleet.job.log_position import LogPosition
from rayfleet.job.model import Job, JobFailed, JobLost, JobStatus, JobStopped
from rayfleet.job.package import packaged
from rayfleet.job.redaction import redacted, redacted_log, secrets_of
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from rayfleet.cluster.config import NodeType
    from rayfleet.console import Console
    from rayfleet.job.request import Order

Connect: TypeAlias = Callable[[], AbstractContextManager[JobClient]]
"""Opens the jobs of one cluster, each time over a new connection."""

SILENCE_SECONDS = 120.0
RECONNECT_SECONDS = 3.0


def submit_job(
    connect: Connect,
    order: Order,
    *,
    console: Console,
    wait: bool,
    as_json: bool,
    node_types: Sequence[NodeType] = (),
    enter: Connect | None = None,
) -> None:
    """Submit ``order``; with ``wait`` print its log until it has ended.

    On stdout: the log, or without ``wait`` the submission id; with ``as_json`` the job alone.
    ``node_types`` are those of the cluster, none if they are not known. ``enter`` opens the jobs
    for the submission alone (default: ``connect``): it may refuse what following may not.

    Raises:
        UsageError: no node that the cluster can have holds the job; nothing was submitted.
        Locked: the cluster takes no jobs now.
        JobFailed, JobStopped, JobLost, JobTimedOut: how it ended, if it was not well.
    """
    with (enter or connect)() as client:
        if node_types:
            require_fit(order.needs, node_types, client.nodes, cluster=client.cluster)
        submission_id = place(client, order, console)
        if not wait and as_json:
            console.json(client.get(submission_id).document())
        elif not wait:
            console.data(submission_id)
    if wait:
        watch_job(
            connect,
            submission_id,
            console=console,
            timeout=order.timeout,
            as_json=as_json,
            submitted=True,
            secrets=secrets_of(order.env_vars),
        )


def place(client: JobClient, order: Order, console: Console) -> str:
    """Upload the working directory of ``order``, submit it and return its submission id."""
    if order.working_dir is None:
        request = order.request()
    else:
        with packaged(order.working_dir) as package:
            fresh = client.upload(package)
            console.say(
                f"{client.cluster}: working directory {order.working_dir} "
                f"(files: {package.files}, {package.size / 1024:.0f} KiB) "
                + ("uploaded" if fresh else "already there")
            )
            request = order.request(package=package.name)
    submission_id = client.submit(request)
    console.say(f"{client.cluster}: submitted {submission_id}")
    return submission_id


def show_log(connect: Connect, job_id: str, *, console: Console, as_json: bool) -> None:
    """Print what the job has printed so far; with ``as_json`` the job and its log.

    Raises:
        UnknownJob: the cluster knows no such job.
    """
    with connect() as client:
        text = client.logs(job_id)
        job = client.get(job_id)
    text = redacted_log(text, job.entrypoint)
    if as_json:
        console.json({**job.document(), "logs": text})
    elif text:
        console.data(text.removesuffix("\n"))


def watch_job(
    connect: Connect,
    job_id: str,
    *,
    console: Console,
    timeout: float,
    as_json: bool,
    log: bool = True,
    submitted: bool = False,
    secrets: Sequence[str] = (),
    clock: Clock | None = None,
) -> None:
    """Print each new line of the job's log until it has ended, then say how it ended.

    With ``as_json`` the log is narration (stderr) and the job is the data; without ``log``
    it is not read. A connection that breaks is made again, as long as the head was heard
    within the last two minutes. ``submitted`` says that the head has taken the job already:
    one that does not know it has lost it. ``secrets`` are masked in what the head says.

    Raises:
        JobFailed, JobStopped: it did not succeed.
        JobLost: the head forgot it.
        JobTimedOut: it has not ended after ``timeout`` seconds; it is left as it is.
        Unreachable: the head was not heard for two minutes.
    """
    out: Callable[[str], None] = console.say if as_json else console.data
    clock = clock or SystemClock()
    watch = _Watch(connect, job_id, console.say, clock, log=log)
    if submitted:
        watch.position.contact = clock.monotonic()
    with _left_running(job_id, console):
        for line in watch.lines(timeout):
            out(line)
        job = watch.ended()
    if as_json:
        console.json(job.document())
    console.say(f"{watch.cluster}: {job.name} {job.status}")
    raise_outcome(watch.cluster, job, secrets)


def raise_outcome(cluster: str, job: Job, secrets: Sequence[str] = ()) -> None:
    """Raise unless the ended ``job`` succeeded.

    Raises:
        JobFailed: it is FAILED (exit code 2).
        JobStopped: it is STOPPED (exit code 3).
    """
    logs = f"invoke jobs.logs --cluster {cluster} {job.name}"
    if job.status is JobStatus.STOPPED:
        raise JobStopped(f"{cluster}: {job.name} was stopped", next_step=logs)
    if job.status is JobStatus.FAILED:
        raise JobFailed(f"{cluster}: {job.name} failed", why=_cause(job, secrets), next_step=logs)


class _Watch:
    """Follows one job over as many connections as it takes."""

    def __init__(
        self,
        connect: Connect,
        job_id: str,
        notice: Callable[[str], None],
        clock: Clock,
        *,
        log: bool,
    ) -> None:
        self.position = LogPosition()
        self.cluster = ""
        self._connect = connect
        self._job_id = job_id
        self._notice = notice
        self._clock = clock
        self._log = log

    def lines(self, timeout: float) -> Iterator[str]:
        """Each line of the log once, until the job has ended."""
        began = self._clock.monotonic()
        while True:
            left = timeout - (self._clock.monotonic() - began)
            try:
                with self._connect() as client:
                    yield from client.follow(
                        self._job_id,
                        timeout=left,
                        position=self.position,
                        notice=self._notice,
                        read=self._log,
                    )
                return
            except JobLost:
                raise
            except Unreachable as error:
                self._pause(error)

    def ended(self) -> Job:
        """The job as it ended, once :meth:`lines` is through."""
        while True:
            try:
                with self._connect() as client:
                    self.cluster = client.cluster
                    return client.get_known(self._job_id)
            except JobLost:
                raise
            except Unreachable as error:
                self._pause(error)

    def _pause(self, error: Unreachable) -> None:
        contact = self.position.contact
        if contact is None or self._clock.monotonic() - contact > SILENCE_SECONDS:
            raise error
        self._notice(f"{error.what}; connecting again")
        self._clock.sleep(RECONNECT_SECONDS)


@contextmanager
def _left_running(job_id: str, console: Console) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        console.say(f"{job_id} goes on without you; see it again with jobs.logs --follow")
        raise


def _cause(job: Job, secrets: Sequence[str]) -> str:
    if job.error_type == "JOB_ENTRYPOINT_COMMAND_ERROR" and job.exit_code is not None:
        return f"its entrypoint ended with exit code {job.exit_code}"
    # Masked before it is cut: half a secret is not recognised.
    lines = redacted(job.message, secrets).strip().splitlines() or ["no explanation"]
    return f"{job.error_type}: {lines[0][:500]}" if job.error_type else lines[0][:500]
