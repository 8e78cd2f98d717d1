"""Text for people: ``cluster | line``, chunk by chunk."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO

from rayfleet.harmless import harmless
from rayfleet.log.output.sink import Batch, Direct
from rayfleet.log.output.style import RESET, Style

if TYPE_CHECKING:
    from rayfleet.cluster.heads import Target

WIDEST_FILE = 48
_DRIVER = re.compile(r"^job-driver-(.+)\.log$")
_LONG_ID = re.compile(r"([0-9a-f]{8})[0-9a-f]{8,}")


class TextSink(Direct):
    """Writes ``cluster | line``, or ``cluster file | line`` when ``files`` are to be told apart.

    ``names`` says what the node (cluster, id) is called, ``colours`` which colour a cluster has.
    The usual line is never looked at.
    """

    def __init__(
        self,
        out: BinaryIO,
        names: Mapping[tuple[str, str], str],
        style: Style,
        *,
        colours: Mapping[str, bytes] | None = None,
        files: bool = False,
        highlight: Callable[[bytes], bytes] | None = None,
    ) -> None:
        super().__init__(out)
        self._names = dict(names)
        self._style = style
        self._colours = (colours or {}) if style.colour else {}
        self._files = files
        self._highlight = highlight
        self._name_width = max(map(len, names.values()), default=0)
        self._file_width = 0
        self._prefixes: dict[tuple[str, str, str], bytes] = {}

    def write(self, batch: Batch) -> None:
        """Write and flush the lines of a batch."""
        prefix = self._prefixes.get(batch.source) or self._new_prefix(batch)
        lines = harmless(batch.lines) if self._style.harmless else batch.lines
        if self._highlight is not None:
            lines = self._highlight(lines)
        self._out.write(prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n")
        self._out.flush()

    def joined(self, target: Target) -> None:
        """Make room for its name."""
        self._names[target.cluster, target.node] = target.name
        if len(target.name) > self._name_width:
            self._name_width = len(target.name)
            self._prefixes.clear()

    def _new_prefix(self, batch: Batch) -> bytes:
        name = self._names.get((batch.cluster, batch.node)) or f"{batch.cluster}/{batch.node}"
        words = f"{name:<{self._name_width}}"
        if self._files:
            file = _short(batch.file)
            if self._file_width < len(file) <= WIDEST_FILE:
                # The columns of all files grow with it.
                self._file_width = len(file)
                self._prefixes.clear()
            words += f" {file:<{self._file_width}}"
        bar = harmless(words.replace("\n", "?").encode(errors="replace")) + b" |"
        colour = self._colours.get(batch.cluster)
        if colour:
            bar = colour + bar + RESET
        prefix = self._prefixes[batch.source] = bar + b" "
        return prefix


def _short(file: str) -> str:
    # As --log has it.
    return _LONG_ID.sub(r"\1..", _DRIVER.sub(r"job:\1", file))
