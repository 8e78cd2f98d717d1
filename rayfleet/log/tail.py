"""``tail-logs``: the logs of many nodes on stdout."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from rayfleet.cluster.heads import HEAD, Heads, Target
from rayfleet.console import Console
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.log.follow import Follower
from rayfleet.log.match import Match
from rayfleet.log.merge import Merge
from rayfleet.log.newcomers import Newcomers
from rayfleet.log.options import Options
from rayfleet.log.output.highlight import Highlight
from rayfleet.log.output.jsonl import JsonlSink
from rayfleet.log.output.pipe import abandon
from rayfleet.log.output.raw import RawSink
from rayfleet.log.output.style import colours_of, style_of
from rayfleet.log.output.template import TemplateSink
from rayfleet.log.output.text import TextSink
from rayfleet.project import Project

if TYPE_CHECKING:
    from rayfleet.log.output.sink import Sink

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def tail_clusters(
    project: Project,
    fleet: Fleet,
    clusters: Sequence[Cluster],
    options: Options,
    *,
    console: Console,
) -> None:
    """Write the logs of ``clusters`` to stdout as ``options`` say, and narrate on ``console``.

    It ends quietly on Ctrl-C while following, and when nobody reads stdout any more.

    Raises:
        Unreachable: no node could be read.
        PartialFailure: some nodes could not be read.
        UnwantedLine: a line matched ``fail_on``.
        NotSeen: the end came, and no line had matched ``until_match``.
        ToolFailed: there are no such logs, or stdout cannot be written.
        UsageError: there is no such node.
    """
    out = _stdout()
    with Heads(project, fleet) as heads:
        targets = heads.targets(clusters, options.nodes)
        if not targets and not options.follow:
            raise UsageError(
                f"there are no {options.nodes} to read",
                next_step="invoke tail-logs --nodes head --no-follow",
            )
        if options.follow and (console.err.isatty() or not targets):
            console.say(f"{_what_is_followed(targets, options)}; Ctrl-C ends it")
        sink = _output(options, targets, out, fleet)
        if options.window is not None:
            sink = Merge(sink, window=options.window, targets=targets, say=console.say)
        match = Match(sink, fail_on=options.fail_on, until=options.until_match)
        follower = Follower(
            targets=targets,
            request=options.request(),
            connect=heads.open,
            sink=match,
            say=console.say,
            newcomers=_newcomers(heads, clusters, options),
            drop=options.drop,
        )
        try:
            follower.run()
        except BrokenPipeError:
            abandon(out)
            return
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            abandon(out)
            raise ToolFailed("stdout cannot be written", why=os.strerror(error.errno)) from error
        match.check()


def _what_is_followed(targets: Sequence[Target], options: Options) -> str:
    if not targets:
        return f"there are no {options.nodes} yet; following each that joins"
    nodes = targets[0].name if len(targets) == 1 else f"{len(targets)} nodes"
    return f"following {nodes}" + ("" if options.nodes == HEAD else ", and each that joins")


def _newcomers(heads: Heads, clusters: Sequence[Cluster], options: Options) -> Newcomers | None:
    # Of the heads there is always one, whatever it is called.
    if not options.follow or options.nodes == HEAD:
        return None
    return Newcomers(lambda: heads.targets(clusters, options.nodes))


def _stdout() -> BinaryIO:
    # None where it was closed before we began.
    if sys.stdout is None:
        raise UsageError("there is no stdout to write to")
    return sys.stdout.buffer


def _output(options: Options, targets: Sequence[Target], out: BinaryIO, fleet: Fleet) -> Sink:
    if options.output == "raw":
        return RawSink(out)
    if options.output == "jsonl":
        return JsonlSink(out)
    style = style_of(out, os.environ, colour=options.color)
    highlight = Highlight(options.highlight) if options.highlight and style.colour else None
    if options.template is not None:
        return TemplateSink(out, options.template, style, highlight=highlight)
    # Those of all clusters, so that one has its colour whichever are followed.
    colours = colours_of([*fleet.clusters])
    names = {(target.cluster, target.node): target.name for target in targets}
    several = options.selection.several
    return TextSink(out, names, style, colours=colours, files=several, highlight=highlight)
