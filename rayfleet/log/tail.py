"""``tail-logs``: the logs of many clusters on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rayfleet.cluster.head import Head
from rayfleet.cluster.nodes import head_address
from rayfleet.console import Console
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.log.follow import Follower
from rayfleet.log.output import JsonSink, TextSink, abandon, line_filter, reader_is_gone, style_of
from rayfleet.log.sources import Reading
from rayfleet.project import Project


def tail_clusters(
    project: Project,
    fleet: Fleet,
    clusters: Sequence[Cluster],
    reading: Reading,
    *,
    grep: str,
    as_json: bool,
    console: Console,
) -> None:
    """Write the logs of ``clusters`` to stdout as ``reading`` says, and narrate on ``console``.

    It ends quietly on Ctrl-C while following, and when nobody reads stdout any more.

    Raises:
        UsageError: ``grep`` is no regular expression, or ``reading`` makes no sense.
        Unreachable: no head could be read.
        PartialFailure: some heads could not be read.
    """
    by_name = {cluster.name: cluster for cluster in clusters}
    keep = line_filter(grep)
    out = sys.stdout.buffer
    follower = Follower(
        clusters=tuple(by_name),
        reading=reading,
        connect=lambda name: Head.open(head_address(project, fleet, by_name[name])),
        sink=JsonSink(out) if as_json else TextSink(out, [*by_name], style_of(out, os.environ)),
        say=console.say,
        keep=keep,
        nobody_reads=lambda: reader_is_gone(out),
    )
    try:
        follower.run()
    except BrokenPipeError:
        abandon(out)
