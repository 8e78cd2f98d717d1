"""Show the page in the operator's browser, without the secret in anybody's list of processes."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rayfleet.files import write_atomically


def can_show(environ: Mapping[str, str]) -> bool:
    """Whether there is a screen: a text browser would take the terminal away."""
    return sys.platform == "darwin" or any(
        environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    )


def open_link(link: str, door: Path, opened: Callable[[str], bool]) -> bool:
    """Open ``link`` with ``opened`` by way of the file ``door``, which only its owner can read.

    An address on a command line can be read by every user of the machine. False if no browser
    was found.

    Raises:
        PrerequisiteMissing: the file cannot be written.
    """
    target = html.escape(link)
    write_atomically(
        door,
        f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={target}"><a href="{target}">Open</a>\n',
        mode=0o600,
    )
    return opened(door.as_uri())


def open_if_possible(link: str, door: Path) -> bool:
    """Open ``link`` in the browser of the operator, where there is one and a screen."""
    import webbrowser

    return can_show(os.environ) and open_link(link, door, webbrowser.open)
