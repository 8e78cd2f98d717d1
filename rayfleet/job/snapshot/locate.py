"""What runs on the head first: it looks for Ray's store, the GCS, and the Python beside it.

This file is sent to the head as it is, with reader.py behind it, and depends on nothing but
Python 3.8. It looks among the processes of this machine, or of this container, and goes on as
the reader in the Python of the cluster's own Ray and with the environment of its GCS: a token is
found where Ray found it and never travels. The dashboard is not needed; a head is often
restarted because its dashboard is broken.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from typing import NamedTuple, NoReturn

MARK = b"\0rayfleet-reader-1\n"
"""What comes before it on stdout is a greeting of the login shell."""

SPLIT = "\n# The reader.\n"
"""What is between this file and the reader's on the way."""

# Each stage reads its own program from stdin, and the first keeps that of the second.
BOOT = (
    f"import sys; first, _, rest = sys.stdin.read().partition({SPLIT!r}); "
    "exec(compile(first, 'rayfleet', 'exec'), {'__name__': '__main__', 'REST': rest})"
)

# They lead a client of Ray to another cluster.
MISLEADING = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR")


class NotFound(Exception):
    """Why there is nothing to read: ``reason`` is for programs, the text for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Process(NamedTuple):
    """One process: its command line, word by word."""

    pid: int
    words: list[str]
    nested: bool

    def option(self, name: str) -> str:
        """The value of ``--name=value``; empty when it is not there."""
        start = "--" + name + "="
        return next((word[len(start) :] for word in self.words if word.startswith(start)), "")


class Where(NamedTuple):
    """A running GCS. ``port`` is its dashboard's; when empty, only the GCS can still tell it."""

    pid: int
    address: str
    session: str
    python: str
    port: str


def ray_processes(proc: str) -> list[Process]:
    """The processes that have to do with Ray, those in containers below this place as well."""
    found = []
    for name in os.listdir(proc):  # noqa: PTH208 (nothing but names is wanted)
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/cmdline", "rb") as stream:  # noqa: PTH123 (plain files)
                line = stream.read()
            if b"/ray/" in line:
                words = os.fsdecode(line).rstrip("\0").split("\0")
                found.append(Process(int(name), words, _nested(proc, name)))
        except OSError:
            continue  # it ended meanwhile
    return found


def _nested(proc: str, name: str) -> bool:
    # A machine sees the processes of its containers too; those have one id more per level.
    with open(f"{proc}/{name}/status") as stream:  # noqa: PTH123
        return any(line.startswith("NSpid:") and len(line.split()) > 2 for line in stream)


def find(port: str, proc: str = "/proc") -> Where:
    """The GCS of the head whose dashboard has ``port``.

    The dashboard itself may be gone: the raylet tells its port too, and where neither is there,
    the only GCS is taken, whose reader asks for the port again.
    """
    everything = ray_processes(proc)
    processes = [each for each in everything if not each.nested]
    servers = [each for each in processes if _is_server(each)]
    heads = [_where(server, processes) for server in servers]
    right = [head for head in heads if head.port == port]
    if not right and len(heads) == 1 and not heads[0].port:
        right = heads
    if len(right) == 1:
        return right[0]
    if not heads and any(_is_server(each) for each in everything):
        raise NotFound("no-ray", "Ray runs there only in a container that could not be entered")
    if not heads:
        raise NotFound("no-ray", "no Ray runs there: there is no gcs_server process")
    ports = ", ".join(sorted(head.port or "unknown" for head in heads))
    if not right:
        raise NotFound("no-ray", f"no Ray there has its dashboard at port {port}, only at {ports}")
    raise NotFound("several", f"{len(right)} Rays there have their dashboard at port {port}")


def _is_server(process: Process) -> bool:
    return process.words[0].endswith("/gcs_server")


def _where(server: Process, processes: list[Process]) -> Where:
    session_dir = server.option("session-dir")
    session = server.option("session-name") or os.path.basename(session_dir)  # noqa: PTH119
    family = [each for each in processes if any(session and session in w for w in each.words)]
    raylets = [each for each in family if each.words[0].endswith("/raylet")]
    dashboards = [each for each in family if _script(each).endswith("/dashboard/dashboard.py")]
    port = next((each.option("webui").rpartition(":")[2] for each in raylets), "")
    port = port or next((each.option("port") for each in dashboards), "")
    address = next(
        (each.option("gcs-address") for each in family if each.option("gcs-address")), ""
    )
    if not address:
        host = server.option("node-ip-address")
        host = f"[{host}]" if ":" in host else host
        address = f"{host}:{server.option('gcs_server_port')}"
    return Where(server.pid, address, session, _python(server, family), port)


def _script(process: Process) -> str:
    return next((word for word in process.words[1:4] if word.endswith(".py")), "")


def _python(server: Process, family: list[Process]) -> str:
    """The Python that has this Ray: of one of its own processes, else the one beside it."""
    scripts = [each.words[0] for each in family if "/ray/" in _script(each)]
    workers = [shlex.split(each.option("python_worker_command"))[:1] for each in family]
    prefix, found, _ = server.words[0].partition("/lib/python")
    beside = [prefix + "/bin/python3"] if found else []
    for path in [*scripts, *(word for words in workers for word in words), *beside]:
        if os.path.isabs(path) and os.access(path, os.X_OK):  # noqa: PTH117
            return path
    return ""


def environment(pid: int, proc: str = "/proc") -> dict[str, str]:
    """The environment of the GCS, without what leads elsewhere; ours when it is not for us.

    Raises:
        NotFound: the GCS has ended.
    """
    env = dict(os.environ)
    try:
        with open(f"{proc}/{pid}/environ", "rb") as stream:  # noqa: PTH123
            pairs = (pair.partition("=") for pair in os.fsdecode(stream.read()).split("\0"))
            env = {name: value for name, _, value in pairs if name}
    except PermissionError:
        pass  # Ray of another user: without its token the GCS decides
    except (FileNotFoundError, ProcessLookupError) as error:
        raise NotFound("no-ray", "Ray ended while it was being looked for") from error
    for name in MISLEADING:
        env.pop(name, None)
    # Ray's C++ part would tell its own story on stderr.
    return {**env, "RAY_BACKEND_LOG_LEVEL": "fatal"}


def become_reader(where: Where, words: list[str], source: str) -> NoReturn:
    """Run the reader in the cluster's own Python."""
    if not where.python:
        raise NotFound("no-python", "the Python of the running Ray was not found")
    readable, writable = os.pipe()
    # A pipe takes 64 KiB before somebody reads, several times the reader.
    os.write(writable, source.encode())
    os.close(writable)
    os.dup2(readable, 0)
    program = [where.python, "-c", BOOT, json.dumps(where._asdict()), *words]
    os.execve(where.python, program, environment(where.pid))  # noqa: S606 (no shell is wanted)


def main(words: list[str], source: str) -> int:
    """Find the GCS and become the reader; 3 when that is not possible, told in a frame.

    ``words`` are the dashboard's port, the limit in seconds, and what the reader is to do.
    """
    signal.alarm(int(words[1]))
    try:
        become_reader(find(words[0]), words, source)
    except NotFound as error:
        frame = {"kind": "error", "reason": error.reason, "text": str(error), "size": 0}
        sys.stdout.buffer.write(MARK + json.dumps(frame).encode() + b"\n")
        sys.stdout.buffer.flush()
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], globals()["REST"]))
