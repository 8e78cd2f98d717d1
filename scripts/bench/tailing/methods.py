"""The ways to run one command on every head and to see whose line is whose."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailing.fleet import Operator
from tailing.heads import LOG, Heads
from tailing.machine import Peers

HERE = Path(__file__).parent
OURS, INVOKE = "rayfleet", "invoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the methods work with."""

    heads: Heads
    peers: Peers
    operator: Operator

    @property
    def hosts_file(self) -> Path:
        """The addresses, one a line."""
        path = self.heads.folder / "hosts"
        path.write_text("".join(f"{host}\n" for host in self.heads.hosts))
        return path


Argv = Callable[[Bench, str], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """``argv`` is given the command for the heads (ours know by themselves what to do).

    ``notices`` are expressions for the lines that the tool adds to the output.
    """

    key: str
    title: str
    argv: Argv
    notices: Sequence[str] = ()


def pssh(bench: Bench, command: str) -> list[str]:
    """Without its timeout; all hosts at once."""
    hosts = str(bench.hosts_file)
    options = ["-P", "-t", "0", "-p", str(bench.heads.count), "-x", f"-F {bench.heads.ssh_config}"]
    return ["parallel-ssh", "-h", hosts, *options, command]


def pdsh(bench: Bench, command: str) -> list[str]:
    """All hosts at once."""
    return [
        *("env", f"PDSH_SSH_ARGS_APPEND=-F {bench.heads.ssh_config}"),
        *("pdsh", "-R", "ssh", "-f", str(bench.heads.count)),
        *("-w", ",".join(bench.heads.hosts), command),
    ]


def clush(bench: Bench, command: str) -> list[str]:
    """All hosts at once, which is less than its default."""
    hosts = ",".join(bench.heads.hosts)
    return ["clush", "-S", "-o", f"-F {bench.heads.ssh_config}", "-w", hosts, command]


def loop(sed: str) -> Argv:
    """What is written down in many a runbook. Without ``-u`` sed is fast, and writes blocks that
    end within a line."""

    def argv(bench: Bench, command: str) -> list[str]:
        config = shlex.quote(str(bench.heads.ssh_config))
        one = f'ssh -n -F {config} "$host" {shlex.quote(command)} | {sed} "s/^/$host: /" &'
        return ["sh", "-c", f"for host in {' '.join(bench.heads.hosts)}; do {one}\ndone; wait"]

    return argv


def parallel_ssh(bench: Bench, command: str) -> list[str]:
    """The library has no program of its own."""
    job = {
        "hosts": bench.heads.hosts,
        "port": bench.heads.port,
        "key": str(bench.heads.client_key),
        "command": command,
    }
    return [bench.peers.program("python"), str(HERE / "parallel_ssh_run.py"), json.dumps(job)]


def pyinfra(bench: Bench, command: str) -> list[str]:
    """Its way to run a command everywhere, all hosts at once, host keys checked."""
    inventory = bench.heads.folder / "inventory.py"
    data = {
        "ssh_config_file": str(bench.heads.ssh_config),
        "ssh_known_hosts_file": str(bench.heads.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }
    inventory.write_text(f"heads = ({list(bench.heads.hosts)!r}, {data!r})\n")
    parallel = ["--parallel", str(bench.heads.count)]
    return [bench.peers.program("pyinfra"), *parallel, "-y", str(inventory), "exec", "--", command]


def rayfleet(mode: str, **more: object) -> Argv:
    """Ours: `rayfleet_run.py` is given the addresses, as the other tools are."""

    def argv(bench: Bench, command: str) -> list[str]:
        heads = bench.heads
        job = {
            "mode": mode,
            "heads": dict(zip(heads.names, heads.hosts, strict=True)),
            "port": heads.port,
            "key": str(heads.client_key),
            "known_hosts": str(heads.known_hosts),
            "root": str(heads.root),
            "log": LOG,
            "command": command,
            **more,
        }
        return [sys.executable, str(HERE / "rayfleet_run.py"), json.dumps(job)]

    return argv


def tail_logs(bench: Bench, command: str) -> list[str]:
    """The task, which asks a cloud for the addresses."""
    del command  # it has a program of its own for the heads
    pattern = str(bench.heads.path)
    return [
        *(bench.operator.invoke, "tail-logs", "--all", "--no-follow", "--tail", "-1"),
        *("--log", pattern),
    ]


def execute(bench: Bench, command: str) -> list[str]:
    """The task, which asks a cloud for the addresses."""
    count = str(bench.heads.count)
    return [bench.operator.invoke, "exec", "--all", "--parallel", count, "--", command]


WHOLE_LOG = (
    Method(
        key=OURS,
        title="rayfleet, given the addresses",
        argv=rayfleet("tail", follow=False, tail=-1),
    ),
    Method(key=INVOKE, title="invoke tail-logs", argv=tail_logs),
    Method(
        key="pssh", title="pssh -P", argv=pssh, notices=(r"^\[\d+\] [\d:]+ \[(SUCCESS|FAILURE)\]",)
    ),
    Method(key="pdsh", title="pdsh", argv=pdsh),
    Method(key="ssh_loop", title="loop of ssh ... tail | sed", argv=loop("sed")),
    Method(key="parallel_ssh", title="parallel-ssh (PyPI)", argv=parallel_ssh),
    Method(key="clush", title="clush", argv=clush),
)
CONNECTING = (
    Method(key=OURS, title="rayfleet, given the addresses", argv=rayfleet("connect")),
    Method(key=INVOKE, title="invoke exec", argv=execute),
    Method(key="pssh", title="pssh -P", argv=pssh),
    Method(key="pdsh", title="pdsh", argv=pdsh),
    Method(key="clush", title="clush", argv=clush),
    Method(key="parallel_ssh", title="parallel-ssh (PyPI)", argv=parallel_ssh),
    Method(key="pyinfra", title="pyinfra exec", argv=pyinfra),
)
FOLLOWING = (
    Method(key=OURS, title="rayfleet", argv=rayfleet("tail", follow=True, tail=0)),
    Method(key="ssh_loop", title="loop of ssh ... tail -F | sed -u", argv=loop("sed -u")),
    Method(key="pdsh", title="pdsh", argv=pdsh),
)
