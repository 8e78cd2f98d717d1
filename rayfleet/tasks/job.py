"""``invoke jobs.*``: jobs on the clusters, through Ray's jobs API."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import WordTask, task

if TYPE_CHECKING:
    from rayfleet.fleet.model import Cluster, Fleet
    from rayfleet.job.run import Connect
    from rayfleet.tasks.edge import Session

ONE_CLUSTER = "The cluster, one of the fleet."
TIMEOUT = "Seconds to stay with the job; it is left running after them."
ENDS = "exit 0 SUCCEEDED, 2 FAILED, 3 STOPPED, 4 lost or no answer, 124 too late."


class FollowTask(WordTask):
    """A task whose ``--follow`` is ``-f`` too, as with tail(1)."""

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        """Invoke's own answer, and the short name."""
        found: dict[str, Any] = super().arg_opts(name, default, taken_names)
        if name == "follow":
            found["names"] = (*found["names"], "f")
        return found


@task(
    positional=["entrypoint"],
    iterable=["cluster", "env", "resource", "label", "metadata"],
    help={
        "entrypoint": "The shell command that the job is, in one argument.",
        "cluster": ONE_CLUSTER,
        "working-dir": "Folder that the command runs in, without what .gitignore ignores.",
        "env": "KEY=VALUE, or KEY to take the value from here; repeatable.",
        "num-cpus": "CPUs that the command itself takes; without any need it runs on the head.",
        "num-gpus": "GPUs that the command itself takes.",
        "memory": "Memory that the command itself takes, such as 4GiB.",
        "resource": "NAME=N of a custom resource, such as TPU=4; repeatable.",
        "label": "KEY=VALUE, KEY=!VALUE or 'KEY=in(A, B)' of the node's labels; repeatable.",
        "metadata": "KEY=VALUE to note with the job, beside owner, commit, command; repeatable.",
        "wait": f"Follow the log; {ENDS}",
        "timeout": TIMEOUT,
        "json": "Print the job as JSON; its log goes to stderr.",
    },
)
def submit(
    context: Context,
    entrypoint: str,
    cluster: list[str],
    env: list[str],
    resource: list[str],
    label: list[str],
    metadata: list[str],
    working_dir: str = "",
    num_cpus: str = "0",
    num_gpus: str = "0",
    memory: str = "0",
    wait: bool = True,
    timeout: str = "86400",
    json: bool = False,
) -> None:
    """Submit a job to a cluster and follow it to its end.

    A cluster that is being restarted takes none: exit 5.
    """
    from rayfleet.cluster.config import read_launch_config
    from rayfleet.job.connection import open_jobs
    from rayfleet.job.needs import parse_needs
    from rayfleet.job.request import parse_order
    from rayfleet.job.run import submit_job
    from rayfleet.rollout.held import open_free_jobs

    needs = parse_needs(
        num_cpus=num_cpus, num_gpus=num_gpus, memory=memory, resources=resource, labels=label
    )
    order = parse_order(
        entrypoint,
        working_dir=working_dir,
        env=env,
        metadata=metadata,
        needs=needs,
        timeout=timeout,
        argv=sys.argv,
        environ=os.environ,
    )
    session, fleet, target = _one(context, cluster)
    # Without needs it runs on the head, which needs no look at the config.
    types = () if needs.nothing else read_launch_config(fleet, target).node_types
    submit_job(
        partial(open_jobs, session.project, fleet, target),
        order,
        console=session.console,
        wait=wait,
        as_json=json,
        node_types=types,
        enter=partial(open_free_jobs, session.project, fleet, target),
    )


@task(
    name="list",
    iterable=["cluster"],
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
    klass=FollowTask,
    positional=["job"],
    iterable=["cluster"],
    help={
        "job": "Submission id, as jobs.list shows it.",
        "cluster": ONE_CLUSTER,
        "follow": "Go on until the job has ended, and exit as jobs.wait would.",
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
    from rayfleet.job.run import show_log, watch_job

    seconds = parse_number(timeout, "--timeout", smallest=1.0)
    session, connect = _reach(context, cluster)
    if follow:
        watch_job(connect, job, console=session.console, timeout=seconds, as_json=json)
    else:
        show_log(connect, job, console=session.console, as_json=json)


@task(
    positional=["job"],
    iterable=["cluster"],
    help={
        "job": "Submission id, as jobs.list shows it.",
        "cluster": ONE_CLUSTER,
        "timeout": TIMEOUT,
        "json": "Print the job as JSON once it has ended.",
    },
)
def wait(
    context: Context,
    job: str,
    cluster: list[str],
    timeout: str = "86400",
    json: bool = False,
) -> None:
    """Wait until a job has ended, without its log.

    Exit codes: 0 SUCCEEDED, 2 FAILED, 3 STOPPED, 4 lost or no answer, 124 too late.
    """
    from rayfleet.arguments import parse_number
    from rayfleet.job.run import watch_job

    seconds = parse_number(timeout, "--timeout", smallest=1.0)
    session, connect = _reach(context, cluster)
    watch_job(connect, job, console=session.console, timeout=seconds, as_json=json, log=False)


@task(
    positional=["job"],
    iterable=["cluster", "also"],
    help={
        "job": "Submission id, as jobs.list shows it.",
        "cluster": ONE_CLUSTER,
        "also": "Another job to stop; repeatable.",
        "timeout": "Seconds to wait until the jobs have ended.",
        "dry-run": "Say which would be stopped, stop none.",
        "json": "Print what became of each job as JSON.",
    },
)
def stop(
    context: Context,
    job: str,
    cluster: list[str],
    also: list[str],
    timeout: str = "60",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Stop jobs and see that they have ended.

    Exit codes: 0 all have ended, 2 one waits to start and cannot be stopped, 4 lost or no
    answer, 5 the cluster is being restarted, 124 one still runs.
    """
    from rayfleet.arguments import parse_number
    from rayfleet.job.stop import stop_jobs
    from rayfleet.rollout.held import open_free_jobs

    seconds = parse_number(timeout, "--timeout", smallest=1.0)
    session, fleet, target = _one(context, cluster)
    with open_free_jobs(session.project, fleet, target) as client:
        stop_jobs(
            client,
            [job, *also],
            timeout=seconds,
            console=session.console,
            as_json=json,
            dry_run=dry_run,
        )


def _one(context: Context, cluster: list[str]) -> tuple[Session, Fleet, Cluster]:
    from rayfleet.fleet.select import select_one

    session = open_session(context)
    fleet = session.fleet()
    return session, fleet, select_one(fleet, cluster)


def _reach(context: Context, cluster: list[str]) -> tuple[Session, Connect]:
    from rayfleet.job.connection import open_jobs

    session, fleet, target = _one(context, cluster)
    return session, partial(open_jobs, session.project, fleet, target)
