"""Files to and from nodes, through rsync: what is there already is not sent again, and what was
cut off goes on where it was."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.cluster.fanout import fan_out, reason
from rayfleet.cluster.openssh import FAILED, Entry, entry
from rayfleet.errors import RayfleetError, ToolFailed, UsageError

if TYPE_CHECKING:
    from rayfleet.cluster.heads import Heads, Target

LIMIT = 8  # transfers at once: the operator's own line is what they share
CONNECT_SECONDS = 120.0
CAUSES = 3  # of the lines with which rsync says what failed
IDLE_SECONDS = 120  # without a byte in either direction rsync gives up

_OPTIONS = (
    "--archive",
    "--compress",
    # A file that was cut off is not lost, and nobody takes it for the whole one.
    "--partial-dir=.rsync-partial",
    # Names with blanks and the like are names, on the node too.
    "--secluded-args",
    "--stats",
    "--no-human-readable",
    f"--timeout={IDLE_SECONDS}",
)
_SUMMARY = "Number of files"
_FILES = re.compile(r"Number of (?:regular )?files transferred: ([\d,.]+)")
_SIZE = re.compile(r"Total transferred file size: ([\d,.]+)")
# rsync's own codes that mean the connection: protocol stream, socket, time-out, and ssh's.
_CONNECTION = frozenset((10, 12, 30, 35, FAILED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be copied. ``source`` and ``destination`` are paths as rsync reads them: a
    ``source`` that ends with ``/`` stands for what is in that folder; on a node, what does not
    begin with ``/`` is below the login's home. ``upload`` tells the direction."""

    source: str
    destination: str
    upload: bool
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What came to ``target``, or from it: files and their bytes, or why nothing did."""

    target: Target
    place: str
    files: int = 0
    size: int = 0
    error: RayfleetError | None = None

    def row(self) -> dict[str, object]:
        """For JSON; ``error`` is null where all is well."""
        return {
            "name": self.target.name,
            "place": self.place,
            "files": self.files,
            "bytes": self.size,
            "error": self.error and reason(self.error),
        }


def require_source(order: Order) -> None:
    """See that there is something to copy, before any node is asked.

    Raises:
        UsageError: there is nothing to upload, or a path is empty.
    """
    if not order.source or not order.destination:
        raise UsageError("a path is empty", next_step="give a SRC and a DEST")
    if order.upload and not os.path.lexists(_local(order.source)):
        raise UsageError(f"there is no {order.source} here to upload")


def transfer(
    heads: Heads,
    targets: Sequence[Target],
    order: Order,
    *,
    timeout: float,
    limit: int = LIMIT,
    on_file: Callable[[Target, str], None] = lambda target, name: None,
) -> list[Transferred]:
    """Carry out ``order`` for every target, each within ``timeout`` seconds.

    Several targets download into folders of their own, ``destination/NAME``. ``on_file`` hears
    of every file, from the target's thread.
    """
    alone = len(targets) == 1
    places = {
        target.name: order.destination
        if alone or order.upload
        else str(Path(order.destination) / target.name) + "/"
        for target in targets
    }

    def job(target: Target) -> Callable[[], Transferred]:
        place = places[target.name]
        return lambda: _copy(heads, target, order, place, timeout, on_file)

    results = fan_out(
        {target.name: job(target) for target in targets},
        limit=limit,
        timeout=timeout + CONNECT_SECONDS,
        what="the node",
    )
    return [
        result
        if isinstance(result, Transferred)
        else Transferred(target=target, place=places[target.name], error=result)
        for target, result in zip(targets, results.values(), strict=True)
    ]


def _copy(
    heads: Heads,
    target: Target,
    order: Order,
    place: str,
    timeout: float,
    on_file: Callable[[Target, str], None],
) -> Transferred:
    from rayfleet.process import Finished, run

    lines: list[str] = []
    names = True

    def heard(line: str) -> None:
        nonlocal names
        lines.append(line)
        names = names and not line.startswith((_SUMMARY, "rsync"))
        if names:
            on_file(target, line)

    with entry(heads.address(target), ask=False) as way:
        folder = Path(place) if place.endswith("/") else Path(place).parent
        if not order.upload and not order.dry_run:
            _make(folder)
        finished: Finished = run(
            _argv(way, order, place),
            timeout=timeout,
            env={**os.environ, "LC_ALL": "C"},
            on_line=heard,
        )
    if not finished.ok:
        with suppress(OSError):
            if not order.upload and place.endswith("/"):
                folder.rmdir()  # only when nothing came
        raise _failure(heads, target, finished.code, lines)
    files, size = (_count(pattern, lines) for pattern in (_FILES, _SIZE))
    return Transferred(target=target, place=place, files=files, size=size)


def _argv(way: Entry, order: Order, place: str) -> list[str]:
    source, destination = (
        (_local(order.source), way.remote(_there(place)))
        if order.upload
        else (way.remote(_there(order.source)), _local(place))
    )
    words = [*_OPTIONS, "--out-format=%n", "--rsh", shlex.join(way.program())]
    if order.dry_run:
        words.append("--dry-run")
    return ["rsync", *words, "--", source, destination]


def _local(path: str) -> str:
    # Before a colon rsync would look for a host.
    path = os.path.expanduser(path)  # noqa: PTH111 (a Path would lose the slash at the end)
    return path if path.startswith(("/", "./", "../")) else f"./{path}"


def _there(path: str) -> str:
    # No shell of the node sees the path; rsync starts in the login's home.
    return path.removeprefix("~/") or "."


def _make(folder: Path) -> None:
    from rayfleet.files import ensure_folder

    ensure_folder(folder)


def _count(pattern: re.Pattern[str], lines: Sequence[str]) -> int:
    found = (pattern.match(line) for line in lines)
    return next((int(re.sub(r"\D", "", match[1])) for match in found if match), 0)


def _failure(heads: Heads, target: Target, code: int, lines: Sequence[str]) -> RayfleetError:
    """Why rsync failed; what our own door says of a node that it could not enter is clearer."""
    if code in _CONNECTION:
        try:
            heads.open(target)
        except RayfleetError as error:
            return error
    # "rsync error:" only sums up, and the pipe broke because the other side gave up.
    said = [line for line in lines if line.startswith("rsync:") and "Broken pipe" not in line]
    return ToolFailed(
        f"{target.name}: rsync failed (exit {code})",
        why="\n  ".join(said[:CAUSES] or lines[-CAUSES:]) or "it said nothing",
    )
