"""Submit a job and stay with it to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rayfleet.errors import Unreachable
from rayfleet.job.client import JobClient, LogPosition
from rayfleet.job.model import Job, JobFailed, JobLost, JobStatus, JobStopped
from rayfleet.job.package import packaged
from rayfleet.waiting import Clock, DeadlineExceeded, SystemClock

if TYPE_CHECKING:
    from rayfleet.console import Console
    from rayfleet.job.request import Order

Connect: TypeAlias = Callable[[], AbstractContextManager[JobClient]]
"""Opens the jobs of one cluster, each time over a new connection."""

SILENCE_SECONDS = 120.0
RECONNECT_SECONDS = 3.0


def submit_job(
    connect: Connect, order: Order, *, console: Console, wait: bool, as_json: bool
) -> None:
    """Submit ``order``; with ``wait`` print its log until it has ended.

    On stdout: the log, or without ``wait`` the submission id; with ``as_json`` the job alone.

    Raises:
        JobFailed, JobStopped, JobLost, DeadlineExceeded: how it ended, if it was not well.
    """
    with connect() as client:
        submission_id = place(client, order, console)
        if not wait and as_json:
            console.json(client.get(submission_id).document())
        elif not wait:
            console.data(submission_id)
    if wait:
        watch_job(connect, submission_id, console=console, timeout=order.timeout, as_json=as_json)


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
    clock: Clock | None = None,
) -> None:
    """Print each new line of the job's log until it has ended, then say how it ended.

    With ``as_json`` the log is narration (stderr) and the job is the data. A connection that
    breaks is made again, as long as the head was heard within the last two minutes.

    Raises:
        JobFailed, JobStopped: it did not succeed.
        JobLost: the head forgot it.
        DeadlineExceeded: it still runs after ``timeout`` seconds; it is left running.
        Unreachable: the head was not heard for two minutes.
    """
    out: Callable[[str], None] = console.say if as_json else console.data
    watch = _Watch(connect, job_id, console.say, clock or SystemClock())
    with _left_running(job_id, console):
        for line in watch.lines(timeout):
            out(line)
        with connect() as client:
            cluster, job = client.cluster, client.get(job_id)
    if as_json:
        console.json(job.document())
    console.say(f"{cluster}: {job.name} {job.status}")
    raise_outcome(cluster, job)


def raise_outcome(cluster: str, job: Job) -> None:
    """Raise unless the ended ``job`` succeeded.

    Raises:
        JobFailed: it is FAILED (exit code 2).
        JobStopped: it is STOPPED (exit code 3).
    """
    logs = f"invoke jobs.logs --cluster {cluster} {job.name}"
    if job.status is JobStatus.STOPPED:
        raise JobStopped(f"{cluster}: {job.name} was stopped", next_step=logs)
    if job.status is JobStatus.FAILED:
        raise JobFailed(f"{cluster}: {job.name} failed", why=_cause(job), next_step=logs)


class _Watch:
    """Follows one job over as many connections as it takes."""

    def __init__(
        self, connect: Connect, job_id: str, notice: Callable[[str], None], clock: Clock
    ) -> None:
        self._connect = connect
        self._job_id = job_id
        self._notice = notice
        self._clock = clock
        self._position = LogPosition()

    def lines(self, timeout: float) -> Iterator[str]:
        """Each line of the log once, until the job has ended."""
        began = self._clock.monotonic()
        while True:
            left = timeout - (self._clock.monotonic() - began)
            try:
                with self._connect() as client:
                    yield from client.follow(
                        self._job_id, timeout=left, position=self._position, notice=self._notice
                    )
                return
            except (JobLost, DeadlineExceeded):
                raise
            except Unreachable as error:
                contact = self._position.contact
                if contact is None or self._clock.monotonic() - contact > SILENCE_SECONDS:
                    raise
                self._notice(f"{error.what}; connecting again")
                self._clock.sleep(RECONNECT_SECONDS)


@contextmanager
def _left_running(job_id: str, console: Console) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        console.say(f"{job_id} goes on without you; see it again with jobs.logs --follow")
        raise


def _cause(job: Job) -> str:
    if job.error_type == "JOB_ENTRYPOINT_COMMAND_ERROR" and job.exit_code is not None:
        return f"its entrypoint ended with exit code {job.exit_code}"
    first = job.message.strip().splitlines()[0] if job.message.strip() else "no explanation"
    return f"{job.error_type}: {first[:500]}" if job.error_type else first[:500]
