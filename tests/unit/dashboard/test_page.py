"""The page, from what was seen of the clusters."""

from __future__ import annotations

import base64
import hashlib
import queue
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from aiohttp import web

from rayfleet.cluster.health import Observed
from rayfleet.dashboard import page
from rayfleet.dashboard.status import Look, Place, Watcher
from rayfleet.dashboard.style import STYLE
from rayfleet.errors import Unreachable
from rayfleet.rollout.progress import WORDS, Progress
from rayfleet.rollout.tell.style import BASE
from tests.support.dashboards import config_with


def place(name: str = "us-east5") -> Place:
    def closed() -> None:
        raise Unreachable("closed")

    return Place(
        cluster=name,
        region="us-east5",
        zone="us-east5-b",
        connect=closed,  # type: ignore[arg-type]
        token=None,
        config=lambda: config_with({}),
    )


def look(name: str = "us-east5", *, next_step: str = "", **seen: object) -> Look:
    observed = Observed(cluster=name, **seen) if seen else None  # type: ignore[arg-type]
    return Look(place=place(name), seen=observed, next_step=next_step)


HEALTHY = look(head="h", ray_version="2.60.0", workers={"base": 2}, wanted_workers={"base": 2})
SHORT = look(head="h", ray_version="2.60.0", workers={"base": 1}, wanted_workers={"base": 2})
DOWN = look(problem="us-east5: cannot reach the head: refused", next_step="invoke status")
UNKNOWN = look()
PROGRESS = Progress(
    rollout="20261122T125500Z-4f2a",
    operator="olga@desk",
    word="restarting",
    step="start",
    since=datetime(2026, 11, 22, 12, 55, tzinfo=UTC),
    running=True,
)


@pytest.mark.parametrize(
    ("one", "word", "trouble"),
    [
        (HEALTHY, "healthy", ""),
        (SHORT, "unhealthy", "1 of 2 base joined"),
        (DOWN, "unreachable", "cannot reach the head: refused"),
        (UNKNOWN, "connecting", ""),
    ],
)
def test_a_cluster_has_a_word_and_its_trouble(one: Look, word: str, trouble: str) -> None:
    assert (one.word, one.trouble) == (word, trouble)
    shown = page.clusters([one], {"us-east5": "http://127.0.0.1:5000/"})
    assert f">{word}</span>" in shown
    assert trouble in shown
    assert 'href="http://127.0.0.1:5000/"' in shown


@pytest.mark.parametrize("one", [HEALTHY, SHORT, DOWN])
@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_cluster_that_a_rollout_is_changing_says_so_and_not_that_it_is_unwell(
    one: Look, word: str
) -> None:
    now = replace(one, rollout=replace(PROGRESS, word=word), next_step=PROGRESS.next_step)
    shown = page.clusters([now], {"us-east5": "/"})
    assert f">{word}</span>" in shown
    assert f"{word} by rollout {PROGRESS.rollout} of olga@desk, step start" in shown
    assert f"invoke rollouts.show {PROGRESS.rollout}" in shown
    assert not {">unhealthy<", ">unreachable<"} & set(re.findall(r">\w+<", shown))
    assert f"us-east5 is {word}" in text(page.cause(now, ""))


def test_a_watcher_asks_for_the_rollout_at_each_look() -> None:
    told: queue.Queue[Look] = queue.Queue()
    where = replace(place(), rollout=lambda: PROGRESS)
    watcher = Watcher(
        place=where, changed=lambda _, now: told.put(now), limit=threading.Semaphore(1)
    )
    watcher.start()
    try:
        now = told.get(timeout=60)
    finally:
        watcher.close()
    assert (now.word, now.failed) == ("restarting", True)
    assert now.next_step == PROGRESS.next_step


def test_a_cluster_that_answers_shows_its_version_and_workers() -> None:
    shown = page.clusters([SHORT], {"us-east5": "/"})
    assert ">2.60.0<" in shown
    assert ">1 of 2<" in shown


def test_what_a_cluster_says_is_shown_and_never_run() -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e\"'&"
    shown = page.clusters([look("c", problem=hostile, next_step=hostile)], {"c": "/"})
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "<img" not in text(page.cause(look("c", problem="<img src=x>"), ""))
    assert "<img" not in text(page.refused("<img>"))
    assert "</script>" not in text(page.name_script("a</script>"))


def test_only_the_pages_own_script_may_run() -> None:
    answer = page.overview("sandbox", [HEALTHY], {"us-east5": "/"})
    script = re.search(r"<script>(.*?)</script>", text(answer), re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = answer.headers["Content-Security-Policy"]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_the_cause_comes_with_the_next_command_and_tries_again() -> None:
    answer = page.cause(DOWN, "said")
    assert answer.status == 502
    assert "cannot reach the head: refused" in text(answer)
    assert "<code>invoke status</code>" in text(answer)
    assert 'http-equiv="refresh"' in text(answer)
    assert "port closed" in text(page.cause(UNKNOWN, "port closed"))


def test_every_page_is_whole() -> None:
    for answer in (
        page.overview("sandbox", [HEALTHY, DOWN], {"us-east5": "/"}),
        page.cause(DOWN, ""),
        page.refused("why"),
        page.entered(),
    ):
        parser = Balance()
        parser.feed(text(answer))
        assert parser.open == []
        assert text(answer).startswith("<!doctype html>")


def test_ray_has_its_name_put_before_the_end_of_the_head() -> None:
    index = b"<html><head><title>Ray</title></head><body></head></body></html>"
    named = page.with_name(index)
    assert named.count(b"rayfleet-name.js") == 1
    assert named.index(b"rayfleet-name.js") < named.index(b"</head>")
    assert page.with_name(b"no page") == b"no page"


def test_the_page_has_the_colours_of_the_report() -> None:
    assert STYLE.startswith(BASE)
    own = STYLE.removeprefix(BASE)
    assert set(re.findall(r"var\(--(\w+)\)", own)) <= set(re.findall(r"--(\w+):", BASE))
    assert not re.findall(r"#[0-9a-f]{3,8}\b", own.replace("#clusters", ""))


def text(answer: web.Response) -> str:
    """The body of an answer."""
    assert answer.text is not None
    return answer.text


class Balance(HTMLParser):
    """Which elements were not closed, of those that must be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in {"meta", "link", "td", "th", "tr", "li"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
