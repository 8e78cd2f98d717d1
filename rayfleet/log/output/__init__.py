"""Write log lines of many nodes to one stream."""

from rayfleet.log.output.sink import Batch, Sink

__all__ = ["Batch", "Sink"]
