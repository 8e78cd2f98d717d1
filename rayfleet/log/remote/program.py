"""The program for the nodes as it is sent: the files beside this one, packed, and a request.

Its modules keep their names on the node, so that one imports the other there as it does here.
"""

from __future__ import annotations

import json
import shlex
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rayfleet.cluster.container import where_ray_runs

MODULES = (
    "records",
    "cursor",
    "reader",
    "family",
    "lineage",
    "session",
    "request",
    "frames",
    "watch",
    "main",
)
"""What is sent, each after those that it imports."""

# It reads its program, and runs each module under its own name.
BOOT = (
    "import sys, zlib\n"
    "given = sys.stdin.buffer\n"
    "parts = zlib.decompress(given.read(int(given.readline()))).decode().split(chr(0))\n"
    "for name, source in zip(parts[::2], parts[1::2]):\n"
    "    module = sys.modules[name] = type(sys)(name)\n"
    "    exec(compile(source, name, 'exec'), module.__dict__)\n"
    "sys.exit(module.main(given.readline(), 1))"
)


def command(container: str, given: int) -> str:
    """The shell command that runs the program where Ray runs: in ``container``, where that is not
    empty. ``given`` is the length of the :func:`payload` in bytes.

    Nothing is imported from the folder of a user there, and nothing of a site.
    """
    python = f"cd / && exec python3 -I -S -c {shlex.quote(BOOT)}"
    return where_ray_runs(container, python, given=given)


def payload(request: Mapping[str, Any]) -> bytes:
    """What the command reads on its stdin: the program, and what it is to do."""
    return _program() + json.dumps(request).encode() + b"\n"


@cache
def _program() -> bytes:
    folder = Path(__file__).parent
    parts = []
    for name in MODULES:
        parts += [f"{__package__}.{name}", (folder / f"{name}.py").read_text()]
    packed = zlib.compress("\0".join(parts).encode(), 9)
    return b"%d\n%s" % (len(packed), packed)
