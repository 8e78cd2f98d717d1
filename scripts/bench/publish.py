"""Publishing an image to four registries under three tags: rayfleet against today's tools.

    .venv/bin/python scripts/bench/publish.py [--json] [--runs 3] [--only loopback|wan] [--quick]

Compared are the docker tag and push loop, the same with a chain of pushes per registry side by
side, docker-py in threads, one push with parallel skopeo copies, a skopeo layout with parallel
copies, rayfleet's publish alone, and the task `invoke image.publish`, which also looks at the
policies, protects and pins: into empty registries, after the top layer changed, after a layer in
the middle changed, and after nothing did. Then all but docker-py again over simulated links of
80 ms and 25 MB/s per region. Every run's result is checked: one digest under all tags in all
registries, and all its blobs there.

Times are of whole programs, the start of Python included. Layers are packed by docker at gzip's
own level, by the skopeo layout at level 1, which is nearest to isal's level 1, ours; the bytes are
in the column `MB`. It needs root or the docker group, about 22 GB in TMPDIR, and
20 minutes of a quiet machine. Exit code 1: a bar was missed, or a run failed.
With --json the last line is one JSON object: {"ratios": {...}, "bars": {...}, "figures": {...}}.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from publishing.links import check_links
from publishing.machine import prepare
from publishing.methods import METHODS
from publishing.registries import REGIONS
from publishing.report import LOOPBACK, WAN, report, table, verdicts
from publishing.stages import Stage

from rayfleet.errors import RayfleetError

QUICK_SCALE = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Measure, print the table, and JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--runs", type=int, default=3, help="of all that is quick (default: 3)")
    parser.add_argument("--only", choices=(LOOPBACK, WAN), help="one of the two networks")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the image, to try the script; no bar is held",
    )
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs is 1 at least")
    try:
        stages = measured(options)
    except RayfleetError as error:
        sys.exit(str(error))
    found = report(stages)
    print(*table(stages), *verdicts(found), sep="\n")
    for line in found.missed:
        print(f"missed: {line}" if not options.quick else f"not judged (--quick): {line}")
    if options.json:
        print(json.dumps(found.as_json()))
    sys.exit(1 if found.missed and not options.quick else 0)


def measured(options: argparse.Namespace) -> list[Stage]:
    """Run the stages that were asked for."""
    with clean_end(), tempfile.TemporaryDirectory(prefix="rayfleet-bench-") as scratch:
        scale = QUICK_SCALE if options.quick else 1.0
        machine = prepare(Path(scratch), scale, say)
        say(f"{', '.join(machine.versions)}; load {os.getloadavg()[0]:.1f}")
        stages = [
            Stage(
                name=name,
                methods=methods,
                wide=name == WAN,
                runs=options.runs,
                scale=scale,
                engine=machine.engine,
                folder=Path(scratch, name),
                say=say,
            )
            for name, methods in (
                (LOOPBACK, METHODS),
                (WAN, [each for each in METHODS if each.wide]),
            )
            if options.only in (None, name)
        ]
        for stage in stages:
            if stage.wide:
                check_links(len(REGIONS), say)
            stage.run()
        return stages


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def clean_end() -> Iterator[None]:
    """Turn the first signal to end into an exception, and leave the clean-up alone after it."""

    def end(number: int, _: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        say("cleaning up")
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, end) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


if __name__ == "__main__":
    main()
