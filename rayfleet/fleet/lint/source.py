"""The YAML documents of a file that may be anything, with lines and what is wrong with them.

Unlike a fleet file, a cluster config may have anchors, aliases and merge keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rayfleet.fleet.document import (
    Document,
    Problem,
    Reader,
    Trail,
    Unreadable,
    Value,
    composed,
    read_text,
)

MOST_VALUES = 100_000
"""With all aliases written out: a short file can stand for more than any machine holds."""
DEEPEST = 40
MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file; ``fault`` says why it has no documents, at its line."""

    shown: str
    documents: tuple[Document, ...] = ()
    fault: Problem | None = None


def read_source(path: Path, *, shown: str) -> Source:
    """Read ``path``, a pipe too; ``shown`` is how messages call it.

    Raises nothing: what is wrong with the file is its fault.
    """
    try:
        return parse_source(read_text(path, "cluster config"), shown=shown)
    except Unreadable as error:
        return Source(shown=shown, fault=error.problem)


def parse_source(text: str, *, shown: str) -> Source:
    """The documents of ``text``; ``shown`` is how messages call it.

    Raises nothing: what is wrong with the text is its fault.
    """
    try:
        # Between two lines of dashes there may be nothing.
        nodes = [node for node in composed(text) if not isinstance(node, ScalarNode) or node.value]
    except Unreadable as error:
        return Source(shown=shown, fault=error.problem)
    if not nodes:
        return _faulty(shown, 1, "the file is empty; write a cluster config")
    documents: list[Document] = []
    for node in nodes:
        if not isinstance(node, MappingNode):
            line = int(node.start_mark.line) + 1
            return _faulty(shown, line, "not a mapping of keys, so no cluster config")
        try:
            documents.append(_document(node, shown))
        except _TooManyValues:
            text = f"its aliases stand for more than {MOST_VALUES} values; write fewer"
            return _faulty(shown, int(node.start_mark.line) + 1, text)
    return Source(shown=shown, documents=tuple(documents))


def _faulty(shown: str, line: int, text: str) -> Source:
    return Source(shown=shown, fault=Problem(line, "", text))


def _document(node: MappingNode, shown: str) -> Document:
    reader = _AliasReader()
    # A trail of its own keeps the line of the document itself.
    reader.lines[()] = int(node.start_mark.line) + 1
    value = reader.mapping(node, ())
    return Document(
        shown=shown,
        value=value,
        lines=reader.lines,
        plain=reader.plain,
        problems=tuple(reader.problems),
    )


class _TooManyValues(Exception):
    """Aliases of aliases: what they stand for would not fit into memory."""


class _AliasReader(Reader):
    """Reads what an alias stands for in its place, and merge keys as YAML 1.1 has them."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[int] = set()
        self._left = MOST_VALUES

    def _value(self, node: Node, trail: Trail) -> Value:
        self._left -= 1
        if self._left < 0:
            raise _TooManyValues
        if id(node) in self._open:
            self._note(None, trail, "an alias of what it stands in, which never ends; remove it")
            return None
        if len(trail) > DEEPEST:
            self._note(None, trail[:2], "nested too deeply to mean anything here; remove it")
            return None
        self._open.add(id(node))
        try:
            return self._content(node, trail)
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: MappingNode) -> Sequence[tuple[Node, Node]]:
        own = [pair for pair in node.value if pair[0].tag != MERGE]
        taken = {key.value for key, _ in own if isinstance(key, ScalarNode)}
        merged = [value for key, value in node.value if key.tag == MERGE]
        for value in merged:
            for source in value.value if isinstance(value, SequenceNode) else (value,):
                if not isinstance(source, MappingNode) or id(source) in self._open:
                    continue
                if len(self._open) > 2 * DEEPEST or self._left < 0:
                    raise _TooManyValues
                self._open.add(id(source))
                for pair in self._pairs(source):
                    self._left -= 1
                    if isinstance(pair[0], ScalarNode) and pair[0].value not in taken:
                        taken.add(pair[0].value)
                        own.append(pair)
                self._open.discard(id(source))
        return own
