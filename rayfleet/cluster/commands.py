"""What ``invoke ssh``, ``exec``, ``upload`` and ``download`` do and say."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from rayfleet.cluster.container import as_operator, entered, where_ray_runs
from rayfleet.cluster.execute import Outcome, execute, failures
from rayfleet.cluster.fanout import require_all
from rayfleet.cluster.gathered import as_rows, as_text
from rayfleet.cluster.heads import Heads, Target
from rayfleet.cluster.openssh import FAILED, entry
from rayfleet.cluster.transfer import Order, require_source, transfer
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable, UsageError

if TYPE_CHECKING:
    from rayfleet.cluster.head import HeadAddress

NOT_FOUND = 127
"""The exit code of a shell that does not find a command."""

Clean = Callable[[bytes], bytes]
"""Makes whole lines of a node fit for a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to run: ``words`` are a command and its arguments, or one line for the shell there.
    ``timeout`` is seconds per node; ``limit`` nodes work at once."""

    words: tuple[str, ...]
    container: bool = False
    timeout: float = 600.0
    limit: int = 16

    def line(self, address: HeadAddress) -> str:
        """The line for the ``sh`` of a node that runs the command there, without input."""
        line = f"exec </dev/null\n{as_operator(self._line)}"
        return where_ray_runs(address.container, line) if self.container else line

    def entry(self, address: HeadAddress, *, terminal: bool) -> str:
        """The line for the login shell of a node that lets the operator in, or runs the command
        with their stdin; empty where that shell itself is wanted."""
        line = as_operator(self._line) if self.words else ""
        if self.container:
            line = entered(address.container, line, terminal=terminal)
        return line and f"exec sh -c {shlex.quote(line)}"

    @property
    def _line(self) -> str:
        return self.words[0] if len(self.words) == 1 else shlex.join(self.words)


def log_in(heads: Heads, target: Target, request: Request) -> int:
    """Let ``ssh`` have the terminal, and return its exit code: that of the shell or command.

    Raises:
        Unreachable: the node cannot be entered, or the connection was lost.
        PrerequisiteMissing: there is no ``ssh``.
    """
    from rayfleet.process import require_program

    require_program("ssh")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    address = heads.address(target)
    command = request.entry(address, terminal=terminal)
    # What went wrong is told by our own door, below. A command alone would get no terminal.
    options = ["-q", "-t"] if command and terminal else ["-q"]
    with entry(address, ask=True) as way:
        code = _in_the_foreground(way.ssh(command, options=options))
    if code != FAILED:
        return code
    heads.open(target)
    raise Unreachable(
        f"{target.name}: ssh ended with {FAILED}",
        why="the connection was lost, or what ran there ended with that",
        next_step=f"invoke status --cluster {target.cluster}",
    )


def run_everywhere(
    heads: Heads,
    targets: Sequence[Target],
    request: Request,
    console: Console,
    *,
    clean: Clean,
    as_json: bool,
) -> None:
    """Run a command on ``targets`` and show what they said; one alone is shown as it comes.

    ``clean`` is for what goes to a terminal.

    Raises:
        UsageError: there is nothing to run, or no node to run it on.
        Unreachable: no node could be entered.
        PartialFailure: some command did not exit with 0, or some node could not be entered.
    """
    if not request.words:
        raise UsageError("no command is given", next_step="add it behind two dashes: -- uptime")
    _require_some(targets)
    alone = len(targets) == 1 and not as_json
    out = sys.stdout.buffer
    shown = _Shown(out, sys.stderr.buffer, clean)
    with nullcontext() if alone else console.phase(f"run on {_nodes(targets)}"):
        outcomes = execute(
            heads,
            targets,
            request.line,
            timeout=request.timeout,
            limit=request.limit,
            live=shown.take if alone else None,
            done=lambda outcome: console.detail(_ended(outcome)),
        )
    shown.rest()
    if as_json:
        console.json(as_rows(outcomes))
    elif not alone:
        for text in as_text(outcomes, clean if out.isatty() else _as_it_is):
            out.write(text)
        out.flush()
    hint = ""
    if not request.container and any(one.container and one.code == NOT_FOUND for one in outcomes):
        hint = "if the command is where Ray is: invoke exec --container ..."
    _conclude(console, failures(outcomes, hint), targets, "the command", hint)


def copy_files(
    heads: Heads,
    targets: Sequence[Target],
    order: Order,
    console: Console,
    *,
    timeout: float,
    limit: int,
    as_json: bool,
) -> None:
    """Upload to ``targets``, or download from them, and show a table of what came where.

    Raises:
        UsageError: there is nothing to upload, or no node.
        Unreachable: no node could be entered.
        PartialFailure: some transfers failed.
    """
    require_source(order)
    _require_some(targets)
    doing = "upload to" if order.upload else "download from"
    with console.phase(f"{'dry run: ' if order.dry_run else ''}{doing} {_nodes(targets)}"):
        results = transfer(
            heads,
            targets,
            order,
            timeout=timeout,
            limit=limit,
            on_file=lambda target, name: console.detail(f"{target.name}: {name}"),
        )
    if as_json:
        console.json([result.row() for result in results])
    else:
        rows = [(r.target.name, r.files, r.size, r.place) for r in results if r.error is None]
        if rows:
            to = "would go to" if order.dry_run else "went to"
            console.table(("node", "files", "bytes", to), rows)
    failed = {result.target.name: result.error for result in results if result.error is not None}
    _conclude(console, failed, targets, "the transfer")


class _Shown:
    """The output of the only node: as it is, or, on a terminal, whole lines that do no harm."""

    def __init__(self, out: BinaryIO, err: BinaryIO, clean: Clean) -> None:
        self._streams = (out, err)
        self._clean = clean
        self._begun = [b"", b""]

    def take(self, is_error: bool, chunk: bytes) -> None:
        stream = self._streams[is_error]
        if stream.isatty():
            whole, newline, rest = (self._begun[is_error] + chunk).rpartition(b"\n")
            self._begun[is_error] = rest
            chunk = self._clean(whole + newline)
        stream.write(chunk)
        stream.flush()

    def rest(self) -> None:
        for stream, begun in zip(self._streams, self._begun, strict=True):
            if begun:
                stream.write(self._clean(begun) + b"\n")
                stream.flush()


def _in_the_foreground(argv: Sequence[str]) -> int:
    # Ctrl-C is the child's alone. A handler, unlike "ignore", is not inherited by it.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(argv, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _conclude(
    console: Console,
    failed: dict[str, RayfleetError],
    targets: Sequence[Target],
    what: str,
    hint: str = "",
) -> None:
    if len(targets) > 1:
        for error in failed.values():
            if not isinstance(error, PartialFailure):
                console.say(error.text())
    lost = {
        target.cluster: None
        for target in targets
        if isinstance(failed.get(target.name), Unreachable)
    }
    next_step = "invoke status" + "".join(f" --cluster {name}" for name in lost) if lost else hint
    require_all(failed, total=len(targets), what=what, next_step=next_step)


def _require_some(targets: Sequence[Target]) -> None:
    if not targets:
        raise UsageError("there is no such node", why="the clusters have no workers now")


def _ended(outcome: Outcome) -> str:
    return f"{outcome.target.name}: {outcome.ending or 'done'} after {outcome.seconds:.1f} s"


def _nodes(targets: Sequence[Target]) -> str:
    return targets[0].name if len(targets) == 1 else f"{len(targets)} nodes"


def _as_it_is(lines: bytes) -> bytes:
    return lines
