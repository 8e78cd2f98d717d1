"""A YAML file as plain values that remember their lines.

Stricter than YAML: keys are text and appear once, and there are no anchors, aliases or tags of
one's own, so that what a line says is what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from rayfleet.errors import FleetFileError
from rayfleet.harmless import on_one_line

Trail = tuple[str | int, ...]
Value: TypeAlias = bool | int | float | str | list["Value"] | dict[str, "Value"] | None

STANDARD = "tag:yaml.org,2002:"
SCALARS = frozenset(STANDARD + kind for kind in ("null", "bool", "int", "float", "str"))
# What YAML 1.1 reads as a date is text to everyone else, and to us.
TEXT = frozenset(STANDARD + kind for kind in ("str", "timestamp", "merge", "value"))
DEEPEST = 12
DEEPEST_YAML = 100
INTEGER_BITS = 63
MOST_BYTES = 1_000_000
MOST_TEXT = 600  # characters of a message
MOST_KEY = 80


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake: its line (from 1), the keys that lead to it, and what to do about it."""

    line: int
    trail: str
    text: str

    def shown(self, path: str) -> str:
        """``path:line: key.path: text``."""
        where = f"{self.trail}: " if self.trail else ""
        return f"{path}:{self.line}: {where}{_readable(self.text, MOST_TEXT)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """``value`` is the whole file; ``lines`` has the line of every key and item by its trail.

    ``plain`` has what was written, letter by letter, wherever that was without quotes.
    """

    shown: str
    value: dict[str, Value]
    lines: dict[Trail, int]
    plain: dict[Trail, str]
    problems: tuple[Problem, ...]

    def problem(self, trail: Trail, text: str) -> Problem:
        """A mistake at ``trail``, or at the nearest thing above it that the file has."""
        known = trail
        while known and known not in self.lines:
            known = known[:-1]
        return Problem(self.lines.get(known, 1), dotted(trail), text)


def read_document(path: Path, *, shown: str) -> Document:
    """Read the YAML mapping in ``path``; ``shown`` is how messages call the file.

    Mistakes that leave the rest readable (a key twice, an alias) are in ``problems``.

    Raises:
        FleetFileError: the file cannot be read, or is no YAML mapping.
    """
    try:
        nodes = composed(read_text(path, "fleet file"))
        root = _only(nodes)
    except Unreadable as error:
        raise FleetFileError(shown, [error.problem.shown(shown)]) from None
    reader = Reader()
    value = reader.mapping(root, ())
    return Document(
        shown=shown,
        value=value,
        lines=reader.lines,
        plain=reader.plain,
        problems=tuple(reader.problems),
    )


class Unreadable(Exception):
    """A file is not the YAML that it should be; ``problem`` says why, at its line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(line, "", text)


def read_text(path: Path, what: str) -> str:
    """The text of ``path``, a pipe too, which should be a ``what``.

    Raises:
        Unreadable: it cannot be read, is too large, or no UTF-8.
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(1, f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise Unreadable(1, "cannot be read: no file can have such a name") from None
    if len(raw) > MOST_BYTES:
        raise Unreadable(1, f"larger than {MOST_BYTES // 1_000_000} MB, so no {what}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = _line_at(raw, error.start), raw[error.start]
        raise Unreadable(line, f"not UTF-8 text (byte {byte:#04x})") from None


def composed(text: str) -> list[Node]:
    """The documents in ``text``.

    Raises:
        Unreadable: it is no YAML.
    """
    try:
        _refuse_depth(text)
        return list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, why = mark.line + 1 if mark else 1, str(error.problem)
    except ReaderError as error:
        line = _line_at(text.encode(), error.position)
        why = f"{error.reason} ({error.character:#04x})"
    except yaml.YAMLError as error:
        line, why = 1, " ".join(str(error).split())
    raise Unreadable(line, f"not YAML: {why}") from None


def _only(nodes: Sequence[Node]) -> MappingNode:
    if not nodes:
        raise Unreadable(1, "the file is empty; write project: NAME first")
    if len(nodes) > 1:
        raise Unreadable(_line(nodes[1]), "another document begins; a fleet file is one")
    if not isinstance(nodes[0], MappingNode):
        raise Unreadable(_line(nodes[0]), "the file must be a mapping of keys")
    return nodes[0]


def _line_at(raw: bytes, position: int) -> int:
    return raw.count(b"\n", 0, position) + 1


def _readable(text: str, most: int) -> str:
    """``text`` without its middle if it is long, and without what a terminal would obey."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {text[-most // 2 :]}"
    return on_one_line(text)


def _refuse_depth(text: str) -> None:
    """Raise a YAMLError if ``text`` is no YAML, or nested too deeply to be composed.

    Composing is recursive in C: some ten thousand brackets would end the interpreter.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_YAML:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)  # type: ignore[arg-type]  # the C mark is no subclass


class Reader:
    """Turns nodes into values; collects lines and mistakes on the way."""

    def __init__(self) -> None:
        self.lines: dict[Trail, int] = {}
        self.plain: dict[Trail, str] = {}
        self.problems: list[Problem] = []
        self._seen: set[int] = set()
        self._scalars = SafeConstructor()

    def mapping(self, node: MappingNode, trail: Trail) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key_node, value_node in self._pairs(node):
            key = self._key(key_node, trail)
            if key is None:
                continue
            here = (*trail, key)
            if key in found:
                first = self.lines[here]
                self._note(key_node, here, f"written twice (first in line {first}); keep one")
                continue
            self.lines[here] = _line(key_node)
            found[key] = self._value(value_node, here)
        return found

    def _pairs(self, node: MappingNode) -> Sequence[tuple[Node, Node]]:
        return list(node.value)

    def _key(self, node: Node, trail: Trail) -> str | None:
        if not isinstance(node, ScalarNode):
            self._note(node, trail, "a key is a list or mapping; write a word")
            return None
        if node.tag not in TEXT:
            self._note(node, (*trail, node.value), "the key is not text; write it in quotes")
        return str(node.value)

    def _value(self, node: Node, trail: Trail) -> Value:
        if id(node) in self._seen:
            self._note(None, trail, "anchors and aliases are not read here; write the value out")
            return None
        if len(trail) > DEEPEST:
            self._note(None, trail[:2], "nested too deeply to mean anything here; remove it")
            return None
        self._seen.add(id(node))
        return self._content(node, trail)

    def _content(self, node: Node, trail: Trail) -> Value:
        if isinstance(node, ScalarNode):
            return self._scalar(node, trail)
        if node.tag not in (STANDARD + "map", STANDARD + "seq"):
            self._note(None, trail, f"the tag {node.tag} is not read here; remove it")
        if isinstance(node, SequenceNode):
            return self._sequence(node, trail)
        return self.mapping(node, trail) if isinstance(node, MappingNode) else None

    def _sequence(self, node: SequenceNode, trail: Trail) -> list[Value]:
        found: list[Value] = []
        for index, item in enumerate(node.value):
            here = (*trail, index)
            self.lines[here] = _line(item)
            found.append(self._value(item, here))
        return found

    def _scalar(self, node: ScalarNode, trail: Trail) -> Value:
        if not node.style:
            self.plain[trail] = str(node.value)
        if node.tag in TEXT:
            return str(node.value)
        if node.tag not in SCALARS:
            self._note(None, trail, f"the tag {node.tag} is not read here; remove it")
            return str(node.value)
        try:
            value: Value = self._scalars.construct_object(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            self._note(None, trail, f"{node.value!r} is no {node.tag[len(STANDARD) :]}; quote it")
            return None
        if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
            self._note(None, trail, "a number of this size means nothing here; quote it as text")
            return None
        return value

    def _note(self, node: Node | None, trail: Trail, text: str) -> None:
        """Note a mistake where ``node`` is, or where the key of ``trail`` is."""
        line = _line(node) if node is not None else self.lines[trail]
        self.problems.append(Problem(line, dotted(trail), text))


def dotted(trail: Trail) -> str:
    """The keys of a trail as messages show them: ``clusters.us-east5.zone``."""
    return ".".join(_readable(str(step), MOST_KEY) for step in trail)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
