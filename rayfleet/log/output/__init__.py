"""Write log lines of many nodes to one stream."""

from rayfleet.log.output.sink import Batch, Sink
from rayfleet.log.output.text import (
    Filter,
    JsonSink,
    TextSink,
    abandon,
    harmless,
    line_filter,
    reader_is_gone,
    style_of,
)

__all__ = [
    "Batch",
    "Filter",
    "JsonSink",
    "Sink",
    "TextSink",
    "abandon",
    "harmless",
    "line_filter",
    "reader_is_gone",
    "style_of",
]
