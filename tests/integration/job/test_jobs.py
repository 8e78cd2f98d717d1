"""Jobs on a real Ray head."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rayfleet.cluster.head import Head
from rayfleet.console import Console
from rayfleet.errors import ToolFailed, Unreachable, UsageError
from rayfleet.job.board import gather_board
from rayfleet.job.client import JobClient
from rayfleet.job.model import Job, JobFailed, JobKind, JobRequest, JobStatus, UnknownJob
from rayfleet.job.package import MAX_BYTES, Package
from rayfleet.job.request import parse_order
from rayfleet.job.run import Connect, show_log, submit_job, watch_job
from rayfleet.waiting import wait_until
from scripts.jobs.source_statistics import Counts, count, package_folder, source_files
from tests.support.ray_head import LocalRayHead
from tests.support.sshd import LocalSshd

pytestmark = pytest.mark.integration

PYTHON = shlex.quote(sys.executable)
SCRIPTS = Path(__file__).parents[3] / "scripts" / "jobs"
FILES = 40


@dataclass
class Ran:
    """What a submit printed, and how it ended."""

    out: str
    err: str
    error: Exception | None = None

    @property
    def submission_id(self) -> str:
        """The id, as it was narrated."""
        return next(line.split()[-1] for line in self.err.splitlines() if "submitted" in line)


def submit(
    jobs: JobClient | Connect,
    entrypoint: str,
    *,
    working_dir: Path | None = None,
    env: Sequence[str] = (),
    wait: bool = True,
    as_json: bool = False,
) -> Ran:
    order = parse_order(
        entrypoint,
        working_dir=str(working_dir or ""),
        env=env,
        timeout="60",
        argv=["invoke", "jobs.submit"],
        environ=os.environ,
    )
    console = Console(out=io.StringIO(), err=io.StringIO())
    error: Exception | None = None

    def connect() -> AbstractContextManager[JobClient]:
        return nullcontext(jobs) if isinstance(jobs, JobClient) else jobs()

    try:
        submit_job(connect, order, console=console, wait=wait, as_json=as_json)
    except JobFailed as failed:
        error = failed
    assert isinstance(console.out, io.StringIO)
    assert isinstance(console.err, io.StringIO)
    return Ran(out=console.out.getvalue(), err=console.err.getvalue(), error=error)


def ended(jobs: JobClient, job_id: str) -> Job:
    def probe() -> Job | None:
        job = jobs.get(job_id)
        return job if job.ended else None

    return wait_until(probe, what=job_id, timeout=150)


def test_a_job_sees_its_folder_and_its_variables_and_tells_whose_it_is(
    jobs: JobClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hello.py").write_text(
        "import os; print('hello', os.environ['PLAIN'], os.environ['HIDDEN'])\n"
    )
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\nexec {PYTHON} hello.py\n")
    (tmp_path / "run.sh").chmod(0o755)
    monkeypatch.setenv("HIDDEN", "hunter2")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")

    ran = submit(jobs, "./run.sh", working_dir=tmp_path, env=["PLAIN=a b", "HIDDEN"])

    assert ran.error is None
    assert "hello a b hunter2" in ran.out.splitlines()
    job = jobs.get(ran.submission_id)
    assert (job.kind, job.status, job.exit_code) == (JobKind.SUBMISSION, JobStatus.SUCCEEDED, 0)
    assert job.start is not None
    assert job.end is not None
    assert job.start < job.end
    assert job.metadata["command"] == "invoke jobs.submit"
    assert "hunter2" not in ran.err + json.dumps(job.document())


def test_a_failing_job_keeps_its_exit_code_and_its_log(jobs: JobClient) -> None:
    ran = submit(jobs, "echo before; exit 7", as_json=True)
    assert isinstance(ran.error, JobFailed)
    assert ran.error.why == "its entrypoint ended with exit code 7"
    assert json.loads(ran.out)["exit_code"] == 7
    assert "before" in ran.err.splitlines()
    console = Console(out=io.StringIO(), err=io.StringIO())
    show_log(lambda: nullcontext(jobs), ran.submission_id, console=console, as_json=False)
    assert "before" in console.out.getvalue().splitlines()  # type: ignore[attr-defined]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_a_job_prints_does_not_steer_a_terminal_and_a_pipe_gets_it_as_it_is(
    jobs: JobClient,
) -> None:
    ran = submit(jobs, r"printf 'a\033]0;title\007\033[2Jb\n'; exit 1 # " + "\x1b[2J\x1b[31m")
    assert "a\x1b]0;title\x07\x1b[2Jb" in ran.out.splitlines()
    shown = "a\\x1b]0;title\\x07\\x1b[2Jb"
    for follow in (False, True):
        console = Console(out=Terminal(), err=io.StringIO())
        if follow:
            with pytest.raises(JobFailed):
                watch_job(
                    lambda: nullcontext(jobs),
                    ran.submission_id,
                    console=console,
                    timeout=60,
                    as_json=False,
                )
        else:
            show_log(lambda: nullcontext(jobs), ran.submission_id, console=console, as_json=False)
        assert shown in console.out.getvalue().splitlines()  # type: ignore[attr-defined]
    console = Console(out=io.StringIO(), err=io.StringIO())
    gather_board({"c1": jobs.list}).show(console, as_json=False)
    assert "\x1b" not in console.out.getvalue()  # type: ignore[attr-defined]
    assert "# \\x1b[2J" in console.out.getvalue()  # type: ignore[attr-defined]


def test_the_same_request_sent_twice_is_one_job(jobs: JobClient, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    request = JobRequest(
        submission_id=f"once-{os.getpid()}", entrypoint=f"echo ran >> {runs}", metadata={"a": "b"}
    )
    assert jobs.submit(request) == jobs.submit(request) == request.submission_id
    ended(jobs, request.submission_id)
    assert jobs.submit(request) == request.submission_id
    assert runs.read_text() == "ran\n"
    assert [job.name for job in jobs.list()].count(request.submission_id) == 1
    with pytest.raises(UsageError, match="has another job of the id"):
        jobs.submit(replace(request, entrypoint="true"))


def test_a_job_that_runs_is_listed_until_it_ends(jobs: JobClient, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    ran = submit(jobs, f"while ! test -e {gate}; do sleep 0.1; done", wait=False)
    job_id = ran.out.strip()
    assert job_id in {job.name for job in jobs.running()}
    gate.touch()
    assert ended(jobs, job_id).status is JobStatus.SUCCEEDED
    assert job_id not in {job.name for job in jobs.running()}


def test_an_unknown_job_is_one_clear_error(jobs: JobClient) -> None:
    for ask in (jobs.get, jobs.logs):
        with pytest.raises(UnknownJob, match="local knows no job nope"):
            ask("nope")


def test_ray_takes_packages_up_to_our_limit_and_no_larger(jobs: JobClient, tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with path.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    large = Package(name="_ray_pkg_large.zip", path=path, size=MAX_BYTES + 1, files=1)
    with pytest.raises((ToolFailed, Unreachable)):
        jobs.upload(large)
    os.truncate(path, MAX_BYTES)
    assert jobs.upload(replace(large, size=MAX_BYTES))


def test_the_example_job_agrees_with_a_serial_count_and_skips_what_is_done(
    jobs: JobClient, tmp_path: Path
) -> None:
    folder = package_folder("ray")
    names = source_files(folder, FILES)
    serial = sum((count((folder / name).read_bytes()) for name in names), Counts())
    command = f"{PYTHON} source_statistics.py --limit {FILES} --output {tmp_path}"

    first, second = (submit(jobs, command, working_dir=SCRIPTS) for _ in range(2))

    assert first.error is None, first.out
    found = json.loads(first.out.splitlines()[-1])
    assert (found["files"], found["done"], found["failed"]) == (FILES, FILES, 0)
    assert Counts(**{key: found[key] for key in ("lines", "words", "bytes", "functions")}) == serial
    assert len(found["nodes"]) == 1
    outputs = [path for path in (tmp_path / "ray").rglob("*") if path.is_file()]
    assert len(outputs) == FILES
    again = json.loads(second.out.splitlines()[-1])
    assert again == found | {"done": 0, "skipped": FILES, "nodes": []}
    assert "already there" in second.err


def test_a_job_and_its_package_travel_over_ssh(ray_head: LocalRayHead, tmp_path: Path) -> None:
    sshd = LocalSshd(folder=tmp_path / "sshd")
    sshd.start()
    (tmp_path / "work").mkdir()
    data = os.urandom(5_000_000)
    (tmp_path / "work" / "data.bin").write_bytes(data)

    @contextmanager
    def connect() -> Iterator[JobClient]:
        with Head.open(sshd.address()) as head:
            yield JobClient(head.http(ray_head.port), cluster="us-east5")

    try:
        ran = submit(connect, "sha256sum data.bin", working_dir=tmp_path / "work")
    finally:
        sshd.stop()
    assert hashlib.sha256(data).hexdigest() in ran.out
