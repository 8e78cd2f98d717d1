"""One JSON object per line, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import BinaryIO

from rayfleet.log.output.lines import Lines
from rayfleet.log.output.sink import Batch, Direct


class JsonlSink(Direct):
    """Writes one object per line: time, cluster, region, node, file, offset, level, message.

    ``time``, ``offset`` and ``level`` may be null. A piece of a line that is longer than 1 MiB
    has ``"cut": true``. Bytes that are no UTF-8 become U+FFFD; the output is plain ASCII.
    """

    def __init__(self, out: BinaryIO) -> None:
        super().__init__(out)
        self._lines = Lines()

    def write(self, batch: Batch) -> None:
        """Write and flush the lines of a batch."""
        where = _object({"cluster": batch.cluster, "region": batch.region})
        where += ", " + _object({"node": batch.node, "file": batch.file})
        pieces = []
        for text, time, level, offset, cut in self._lines(batch):
            when = "null" if time is None else f'"{time}"'
            name = "null" if level is None else f'"{level}"'
            at = "null" if offset is None else offset
            end = ', "cut": true}\n' if cut else "}\n"
            pieces.append(
                f'{{"time": {when}, {where}, "offset": {at}, "level": {name}, '
                f'"message": {_string(text.decode(errors="replace"))}{end}'
            )
        self._out.write("".join(pieces).encode())
        self._out.flush()


def _object(fields: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}": {_string(value)}' for name, value in fields.items())


def _string(text: str) -> str:
    # JSON allows DEL as it is; a terminal had better not see it.
    encoded = encode_basestring_ascii(text)
    return encoded.replace("\x7f", "\\u007f") if "\x7f" in encoded else encoded
