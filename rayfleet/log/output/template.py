"""Lines in a form of the operator's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import BinaryIO

from rayfleet.errors import UsageError
from rayfleet.harmless import harmless
from rayfleet.log.output.lines import Lines
from rayfleet.log.output.sink import Batch, Direct
from rayfleet.log.output.style import Style

FIELDS = ("time", "cluster", "region", "node", "file", "role", "offset", "level", "message")
UNKNOWN = "-"
# Fill, alignment, width and precision of text; what is wider than a screen is a mistake.
_SPECIFICATION = re.compile(r"(?:[^{}]?[<>^])?\d{0,3}(?:\.\d{1,3})?s?")
_NEXT = "--template '{time} {cluster} {file}: {message}'"


@dataclass(frozen=True, slots=True)
class Template:
    """Pieces of text, each followed by a field (or none) and how it is to be written."""

    pieces: tuple[tuple[str, str | None, str], ...]

    def __call__(self, values: dict[str, str]) -> str:
        """The text with ``values`` in it, by name of the field."""
        return "".join(
            text if name is None else text + format(values[name], specification)
            for text, name, specification in self.pieces
        )


def template_of(text: str) -> Template:
    """Read a template such as ``{time} {cluster}: {message}``; ``{{`` is a brace.

    Raises:
        UsageError: it has other fields, or something that is no field.
    """
    if not text:
        raise UsageError("--template is empty", next_step=_NEXT)
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise _refused(text, str(error)) from error
    for _, name, specification, conversion in parsed:
        if name is None:
            continue
        if name not in FIELDS:
            raise _refused(text, f"{{{name}}} is not one of its fields: {', '.join(FIELDS)}")
        if conversion or not _SPECIFICATION.fullmatch(specification or ""):
            raise _refused(text, f"after {name} only alignment, width and precision may stand")
    return Template(tuple((piece, name, spec or "") for piece, name, spec, _ in parsed))


class TemplateSink(Direct):
    """Writes every line through ``template``; what is not known is a dash."""

    def __init__(
        self,
        out: BinaryIO,
        template: Template,
        style: Style,
        *,
        highlight: Callable[[bytes], bytes] | None = None,
    ) -> None:
        super().__init__(out)
        self._template = template
        self._harmless = style.harmless
        self._highlight = highlight
        self._lines = Lines()

    def write(self, batch: Batch) -> None:
        """Write and flush the lines of a batch."""
        known = {
            "cluster": batch.cluster,
            "region": batch.region or UNKNOWN,
            "node": batch.node,
            "file": harmless(batch.file.replace("\n", "?").encode(errors="replace")).decode(),
            "role": batch.role or UNKNOWN,
        }
        rows = []
        for text, time, level, offset, _ in self._lines(batch):
            known["time"] = time or UNKNOWN
            known["level"] = level or UNKNOWN
            known["offset"] = UNKNOWN if offset is None else str(offset)
            # A carriage return before the end of a line is part of the end.
            shown = harmless(text + b"\n")[:-1] if self._harmless else text
            known["message"] = shown.decode(errors="surrogateescape")
            rows.append(self._template(known))
        lines = ("\n".join(rows) + "\n").encode(errors="surrogateescape")
        self._out.write(self._highlight(lines) if self._highlight else lines)
        self._out.flush()


def _refused(text: str, why: str) -> UsageError:
    return UsageError(f"--template {text!r} cannot be used", why=why, next_step=_NEXT)
