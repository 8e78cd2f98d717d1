"""The page that lists the clusters, and what stands in for a dashboard that is not there.

It reads without a script; the one that is there keeps it fresh.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence

from aiohttp import web

from rayfleet.dashboard.status import Look
from rayfleet.dashboard.style import NAME_SCRIPT, SCRIPT, STYLE
from rayfleet.rollout.progress import WORDS
from rayfleet.rollout.tell.markup import Html, el, raw
from rayfleet.rollout.tell.words import count

REFRESH_SECONDS = 5  # without a script
RETRY_SECONDS = 3
NAME_PATH = "/rayfleet-name.js"
"""A script that we add to Ray's page: the title of its tab begins with the cluster's name."""

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    f"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'sha256-{_HASH}'"
)
_ICON = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
    "<rect width='16' height='16' rx='3' fill='%230b5cad'/>"
    "<path d='M4 11V8m4 3V4m4 7V6' stroke='white' stroke-width='2'/></svg>"
)
_TONES = {"healthy": "good", "unhealthy": "warn", "unreachable": "bad", "connecting": "busy"}
_TONES |= dict.fromkeys(sorted(WORDS), "busy")


def overview(fleet: str, looks: Sequence[Look], links: Mapping[str, str]) -> web.Response:
    """The whole page; ``links`` leads to the dashboard of each cluster."""
    return _answer(
        f"Ray dashboards of {fleet}",
        el(
            "header",
            el("p", f"Fleet {fleet}", cls="eyebrow"),
            el("h1", "Ray dashboards"),
        ),
        el("p", cls="note", id="note", role="alert", hidden=True),
        el("div", clusters(looks, links), id="clusters"),
        refresh=str(REFRESH_SECONDS),
        script=True,
    )


def clusters(looks: Sequence[Look], links: Mapping[str, str]) -> Html:
    """The part of the page that changes."""
    words = Counter(look.word for look in looks)
    chips = [el("li", el("b", str(words[word])), _pill(word)) for word in _TONES if words.get(word)]
    names = ("Cluster", "State", "Ray", "Workers", "Where")
    head = el("tr", [el("th", name, scope="col") for name in names])
    rows = [_row(look, links[look.place.cluster]) for look in looks]
    return Html(
        el("ul", chips, cls="chips", aria_label=count(len(looks), "cluster"))
        + el("section", el("table", el("thead", head), el("tbody", rows)))
    )


def cause(look: Look, said: str) -> web.Response:
    """What a tab of a dashboard shows while the dashboard does not answer; it tries again."""
    name = look.place.cluster
    why = look.trouble or said or "no connection yet"
    return _answer(
        f"{name} is {look.word}",
        el(
            "header",
            el("p", "Ray dashboard", cls="eyebrow"),
            el("h1", name, " ", el("span", look.word, cls=f"result {_TONES[look.word]}")),
        ),
        el(
            "section",
            el("p", why),
            _next(look.next_step),
            el("p", "This page tries again by itself.", cls="mute"),
        ),
        refresh=str(RETRY_SECONDS),
        status=502,
    )


def refused(why: str) -> web.Response:
    """What somebody sees who may not see anything."""
    return _answer(
        "Not let in",
        el("header", el("h1", f"Not let in: {why}")),
        el(
            "section",
            el("p", "Open the address that ", el("code", "invoke dashboard"), " printed."),
            el("p", "Each run has an address of its own, and the old ones end with it."),
        ),
        status=403,
    )


def entered() -> web.Response:
    """What the entry link shows for a moment.

    The page goes on by itself and not by a redirect: a browser that was sent here by another
    program or page would not send a SameSite=Strict cookie along with a redirect.
    """
    return _answer(
        "Ray dashboards",
        el("p", el("a", "Ray dashboards", href="/")),
        refresh="0;url=/",
    )


def name_script(name: str) -> web.Response:
    """The script behind :data:`NAME_PATH`."""
    # "<" cannot end a script here, but nobody has to know that.
    quoted = json.dumps(name).replace("<", "\\u003c")
    return web.Response(
        text=NAME_SCRIPT.replace("NAME", quoted),
        content_type="text/javascript",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )


def with_name(index: bytes) -> bytes:
    """Ray's index page with the script that names the cluster."""
    tag = f'<script defer="defer" src=".{NAME_PATH}"></script></head>'
    return index.replace(b"</head>", tag.encode(), 1)


def _row(look: Look, link: str) -> Html:
    place, seen = look.place, look.seen
    name = el("a", place.cluster, href=link, id=f"open-{place.cluster}")
    facts = ("", "")
    if seen is not None and seen.answers:
        wanted = sum(seen.wanted_workers.values())
        facts = (seen.ray_version, f"{seen.joined} of {wanted}" if wanted else str(seen.joined))
    trouble = None
    if look.trouble:
        trouble = el("div", el("p", look.trouble), _next(look.next_step), cls="trouble")
    where = place.zone or place.region
    return el(
        "tr",
        el("th", name, trouble, scope="row"),
        el("td", _pill(look.word)),
        el("td", facts[0], data_label="Ray" if facts[0] else None),
        el("td", facts[1], data_label="Workers" if facts[1] else None),
        el("td", where),
        cls=_TONES[look.word] + "-row",
    )


def _next(step: str) -> Html | None:
    return el("p", "Next: ", el("code", step), cls="next") if step else None


def _pill(word: str) -> Html:
    return el("span", word, cls=f"pill {_TONES[word]}")


def _answer(
    title: str, *body: Html, status: int = 200, refresh: str = "", script: bool = False
) -> web.Response:
    again = el("meta", http_equiv="refresh", content=refresh) if refresh else None
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("noscript", again) if script else again,
        el("title", title),
        el("link", rel="icon", href=_ICON),
        el("style", raw(STYLE)),
    )
    tail = el("script", raw(SCRIPT)) if script else None
    page = el("html", head, el("body", el("main", *body), tail), lang="en")
    return web.Response(
        text=f"<!doctype html>\n{page}\n",
        content_type="text/html",
        charset="utf-8",
        status=status,
        headers={**HEADERS, "Content-Security-Policy": _POLICY},
    )
