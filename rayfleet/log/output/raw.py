"""The bytes of the logs as they are."""

from __future__ import annotations

from rayfleet.log.output.sink import Batch, Direct


class RawSink(Direct):
    """Writes lines as they are, without a prefix and with whatever a terminal may obey."""

    def write(self, batch: Batch) -> None:
        """Write and flush the lines of a batch."""
        self._out.write(batch.lines)
        self._out.flush()
