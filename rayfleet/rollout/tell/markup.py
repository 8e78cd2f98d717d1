"""HTML out of plain values: everything is escaped unless it was made here. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from rayfleet.harmless import printable


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"

_VOID = frozenset(("meta", "link", "br", "hr", "input"))
# Their end tags may be left out (html.spec.whatwg.org, 13.1.2.4), which saves a fifth of a page.
_OPEN_ENDED = frozenset(("td", "th", "tr", "dt", "dd", "li"))


def el(name: str, /, *children: Child, **attributes: str | bool | None) -> Html:
    """The element ``name``. ``cls`` stands for class; ``_`` in names for ``-``.

    Attributes that are empty, None or False are left out, True stands without a value.
    """
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if name in _VOID:
        return Html(start)
    inner = "".join(map(_child, children))
    return Html(f"{start}{inner}" if name in _OPEN_ENDED else f"{start}{inner}</{name}>")


def raw(text: str) -> Html:
    """``text`` as it is: only for constants of this package."""
    return Html(text)


def escaped(text: str) -> Html:
    """``text`` as HTML that shows it, without what would reorder or hide a part of it."""
    return Html(html.escape(printable(text)))


def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False or value == "":
        return ""
    key = "class" if name == "cls" else name.replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escaped(str(value))}"'


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return child if isinstance(child, Html) else escaped(child)
    return "".join(map(_child, child))
