"""``invoke jobs.*``: jobs on the clusters, through Ray's jobs API."""

from __future__ import annotations

import os
import sys
from functools import partial

from invoke.context import Context
from invoke.tasks import task

from rayfleet.tasks.edge import chosen, open_session

ONE_CLUSTER = "The cluster, one of the fleet."
TIMEOUT = "Seconds to stay with the job; it is left running after them."


@task(
    positional=["entrypoint"],
    iterable=["cluster", "env"],
    auto_shortflags=False,
    help={
        "entrypoint": "The shell command that the job is, in one argument.",
        "cluster": ONE_CLUSTER,
        "working-dir": "Folder that the command runs in, without what .gitignore ignores.",
        "env": "KEY=VALUE, or KEY to take the value from here; repeatable.",
        "num-cpus": "CPUs that the command itself takes; 0 runs it on the head.",
        "wait": "Follow the log; exit 0 SUCCEEDED, 2 FAILED, 3 STOPPED, 4 lost or too late.",
        "timeout": TIMEOUT,
        "json": "Print the job as JSON; its log goes to stderr.",
    },
)
def submit(
    context: Context,
    entrypoint: str,
    cluster: list[str],
    env: list[str],
    working_dir: str = "",
    num_cpus: str = "0",
    wait: bool = True,
    timeout: str = "86400",
    json: bool = False,
) -> None:
    """Submit a job to a cluster and follow it to its end."""
    from rayfleet.job.connection import only, open_jobs
    from rayfleet.job.request import parse_order
    from rayfleet.job.run import submit_job

    session = open_session(context)
    fleet = session.fleet()
    target = only(chosen(fleet, cluster, every=False))
    connect = partial(open_jobs, session.project, fleet, target)
    order = parse_order(
        entrypoint,
        working_dir=working_dir,
        env=env,
        num_cpus=num_cpus,
        timeout=timeout,
        argv=sys.argv,
        environ=os.environ,
    )
    submit_job(connect, order, console=session.console, wait=wait, as_json=json)


@task(
    name="list",
    iterable=["cluster"],
    auto_shortflags=False,
    help={
        "cluster": "Clusters to ask, by name or glob; repeatable. Default: all of them.",
        "json": "Print JSON instead of a table.",
    },
)
def list_jobs(context: Context, cluster: list[str], json: bool = False) -> None:
    """List the jobs of the clusters, ended ones too."""
    from rayfleet.job.board import read_board

    session = open_session(context)
    fleet = session.fleet()
    board = read_board(session.project, fleet, chosen(fleet, cluster, every=not cluster))
    board.show(session.console, as_json=json)
    board.raise_failures()


@task(
    positional=["job"],
    iterable=["cluster"],
    auto_shortflags=False,
    help={
        "job": "Submission id, as jobs.list shows it.",
        "cluster": ONE_CLUSTER,
        "follow": "Go on until the job has ended, and exit as jobs.submit would.",
        "timeout": TIMEOUT,
        "json": "Print the job and its log as JSON.",
    },
)
def logs(
    context: Context,
    job: str,
    cluster: list[str],
    follow: bool = False,
    timeout: str = "86400",
    json: bool = False,
) -> None:
    """Print what a job has printed."""
    from rayfleet.arguments import parse_number
    from rayfleet.job.connection import only, open_jobs
    from rayfleet.job.run import show_log, watch_job

    session = open_session(context)
    fleet = session.fleet()
    target = only(chosen(fleet, cluster, every=False))
    connect = partial(open_jobs, session.project, fleet, target)
    seconds = parse_number(timeout, "--timeout", smallest=1.0)
    if follow:
        watch_job(connect, job, console=session.console, timeout=seconds, as_json=json)
    else:
        show_log(connect, job, console=session.console, as_json=json)
