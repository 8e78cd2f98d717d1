"""``invoke ssh | exec | upload | download``: into every node."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from rayfleet.tasks.edge import chosen, one_cluster, open_session
from rayfleet.tasks.words import after_dashes, task

CHOICE = {
    "cluster": "a cluster's name or a glob; repeat it for more",
    "all": "all clusters of the fleet",
    "nodes": "head, workers or all",
    "parallel": "nodes that work at once",
    "timeout": "how long each node may take, such as 30s, 10m or 2h",
}
INTERRUPTED = 130  # by Ctrl-C
CONTAINER = "where Ray runs: in its container, on machines that have one"
FILES = {
    **CHOICE,
    "source": "the file or folder to copy",
    "dest": "where it goes",
    "dry-run": "say what would be copied, copy nothing",
    "json": "print what came of it as JSON, a row per node",
}


@task(
    help={
        "cluster": "the cluster",
        "node": "head, or a worker by its id, name or a glob",
        "container": CONTAINER,
    },
)
def ssh(context: Context, cluster: str, node: str = "head", container: bool = False) -> None:
    """Log in on a node, or run a command there.

    invoke ssh us-east5
    invoke ssh --cluster us-east5 --node 'worker-*' -- nvidia-smi

    Exits with the code of the shell or command there, and with 4 when the node cannot be
    entered. One word after the dashes is a line for the shell there; several are a command and
    its arguments, as they are.
    """
    from rayfleet.cluster.commands import Request, log_in
    from rayfleet.cluster.heads import Heads

    session = open_session(context)
    fleet = session.fleet()
    with Heads(session.project, fleet) as heads:
        target = heads.find(one_cluster(fleet, cluster), node)
        code = log_in(heads, target, Request(words=after_dashes(), container=container))
    if code:
        raise Exit(code=code)


@task(
    name="exec",
    iterable=["cluster"],
    help={
        **CHOICE,
        "container": CONTAINER,
        "json": "print a row per node as JSON: exit code, output, errors",
    },
)
def execute(
    context: Context,
    cluster: list[str],
    all: bool = False,
    nodes: str = "head",
    parallel: str = "16",
    timeout: str = "10m",
    container: bool = False,
    json: bool = False,
) -> None:
    """Run a command on many nodes at once.

    invoke exec --all -- uptime
    invoke exec --cluster 'us-*' --nodes all -- 'df -h / | tail -1'
    invoke exec --all --container -- ray --version

    Nodes that say the same are shown once. One word after the dashes is a line for bash there;
    several are a command and its arguments, as they are. Either has the environment of a login;
    ray is found where Ray runs, which is in a container (--container) on machines that have one.
    What takes too long gets SIGTERM, and SIGKILL ten seconds later. Exit codes: 0 all did well,
    2 some command did not exit with 0 or some node cannot be entered, 4 none can be.
    """
    import sys

    from rayfleet.arguments import parse_count, parse_duration
    from rayfleet.cluster.commands import Request, run_everywhere
    from rayfleet.cluster.heads import Heads
    from rayfleet.harmless import harmless
    from rayfleet.log.output.pipe import abandon

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=all)
    request = Request(
        words=after_dashes(),
        container=container,
        timeout=parse_duration(timeout, "--timeout"),
        limit=parse_count(parallel, "--parallel"),
    )
    with Heads(session.project, fleet) as heads:
        targets = heads.targets(clusters, nodes)
        try:
            run_everywhere(heads, targets, request, session.console, clean=harmless, as_json=json)
        except BrokenPipeError:
            abandon(sys.stdout.buffer)
        except KeyboardInterrupt:
            raise Exit(code=INTERRUPTED) from None


@task(iterable=["cluster"], help=FILES)
def upload(
    context: Context,
    source: str,
    dest: str,
    cluster: list[str],
    all: bool = False,
    nodes: str = "head",
    parallel: str = "8",
    timeout: str = "2h",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Copy files or folders to nodes.

    invoke upload --cluster us-east5 data/ data

    With rsync: a SRC that ends with / is what is in that folder, a DEST that does not begin
    with / is below the home there. What is there already is not sent again. Exit codes as of
    exec.
    """
    _copy(context, (source, dest), True, cluster, all, nodes, parallel, timeout, dry_run, json)


@task(iterable=["cluster"], help=FILES)
def download(
    context: Context,
    source: str,
    dest: str,
    cluster: list[str],
    all: bool = False,
    nodes: str = "head",
    parallel: str = "8",
    timeout: str = "2h",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Copy files or folders from nodes.

    invoke download --all /tmp/ray/session_latest/logs/ logs

    Of several nodes, each gets a folder of its own: DEST/CLUSTER, DEST/CLUSTER/WORKER.
    Otherwise as upload.
    """
    _copy(context, (source, dest), False, cluster, all, nodes, parallel, timeout, dry_run, json)


def _copy(
    context: Context,
    paths: tuple[str, str],
    upload: bool,
    cluster: list[str],
    every: bool,
    nodes: str,
    parallel: str,
    timeout: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    from rayfleet.arguments import parse_count, parse_duration
    from rayfleet.cluster.commands import copy_files
    from rayfleet.cluster.heads import Heads
    from rayfleet.cluster.transfer import Order

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=every)
    source, destination = paths
    order = Order(source=source, destination=destination, upload=upload, dry_run=dry_run)
    limit = parse_count(parallel, "--parallel")
    seconds = parse_duration(timeout, "--timeout")
    with Heads(session.project, fleet) as heads:
        targets = heads.targets(clusters, nodes)
        try:
            copy_files(
                heads,
                targets,
                order,
                session.console,
                timeout=seconds,
                limit=limit,
                as_json=as_json,
            )
        except KeyboardInterrupt:
            raise Exit(code=INTERRUPTED) from None
