"""The reports: a page that needs nothing else and runs nothing of others, and a text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.model import Direction, PlannedJob, Skipped, Step, Wave
from rayfleet.rollout.tell.markup import _OPEN_ENDED, _VOID, el
from rayfleet.rollout.tell.page import html_report
from rayfleet.rollout.tell.report import text_report, write_reports
from tests.support.rollout_examples import (
    EXAMPLES,
    Example,
    Story,
    big_fleet,
    failing_canary,
    four_good,
    killed_and_resumed,
    make_plan,
    make_target,
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- </style></title>",
    "&lt;b&gt; \x1b[31m \u202egnp.exe",
)


class Page(HTMLParser):
    """Collects elements and texts; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID | _OPEN_ENDED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """What a reader sees."""
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str, cls: str = "") -> list[dict[str, str | None]]:
        """The attributes of all elements ``tag`` of a class."""
        return [a for t, a in self.elements if t == tag and cls in (a.get("class") or "")]


def page_of(example: Example) -> Page:
    """The page of an example, parsed."""
    return Page(html_report(example.plan, example.state, example.records))


def hostile() -> Example:
    """A rollout in which every text that others choose is an attack."""
    names = [f"c{number}" for number in range(len(HOSTILE))]
    targets = [
        replace(
            make_target(name, [PlannedJob(id=bad, owner=bad, status=bad, entrypoint=bad)]),
            changes=(bad,),
            why=bad,
            zone=bad,
            unpreservable=(bad,),
            jobs_problem=bad,
            workers={bad: 1},
            digest_now=bad,
        )
        for name, bad in zip(names, HOSTILE, strict=True)
    ]
    plan = make_plan([Wave(name=HOSTILE[0], clusters=tuple(names))], targets)
    plan = replace(
        plan,
        operator=HOSTILE[1],
        command=HOSTILE[0],
        fleet=HOSTILE[3],
        tool=HOSTILE[2],
        skipped=(Skipped(cluster="other", why=HOSTILE[1]),),
    )
    story = Story(plan)
    story.begin(by=HOSTILE[0])
    for name, bad in zip(names, HOSTILE, strict=True):
        error = {"what": bad, "why": bad, "next": bad}
        story.run(1, name, fails=Step.GATES, error=error)
    asked = {"verb": "pause", "clusters": [HOSTILE[0]], "by": HOSTILE[2]}
    story.say(500, Kind.REQUEST, data=asked)
    story.say(501, Kind.PAUSED, data={"reason": HOSTILE[0]})
    return story.example()


@pytest.mark.parametrize("name", [*EXAMPLES, "hostile"])
def test_the_page_is_well_formed_and_refers_to_nothing_outside(name: str) -> None:
    example = EXAMPLES[name]() if name in EXAMPLES else hostile()
    text = html_report(example.plan, example.state, example.records)
    page = Page(text)
    assert page.open == []
    assert not {"link", "img", "iframe", "object", "form", "base"} & {t for t, _ in page.elements}
    for _, attributes in page.elements:
        assert not {"src", "srcset", "action", "background"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
        assert not [key for key in attributes if key.startswith("on")]
        assert re.sub(r"(left|width):[\d.]+%;?", "", attributes.get("style") or "") == ""
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|expression", style)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {a["href"] for _, a in page.elements if a.get("href")}
    assert targets <= {f"#{each}" for each in ids}


def test_only_the_script_of_the_page_may_run() -> None:
    text = html_report(hostile().plan, hostile().state, hostile().records)
    page = Page(text)
    assert len(page.all("script")) == 1
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] or "" for a in page.all("meta") if "http-equiv" in a]
    assert "default-src 'none'" in policy
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_hostile_texts_are_shown_as_they_are_without_control_characters() -> None:
    text = html_report(hostile().plan, hostile().state, hostile().records)
    page = Page(text)
    for bad in HOSTILE[:4]:
        assert page.text.count(" ".join(bad.split())) >= 4
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>alert" not in text
    assert page.all("img") == []


def test_failures_are_at_the_top_with_cause_and_next_command() -> None:
    text = page_of(failing_canary()).text
    problem = text.index("What needs a person")
    assert problem < text.index("Timeline") < text.index("Clusters") < text.index("Jobs")
    assert "the head does not answer after its start" in text[problem:]
    assert "connection refused" in text[problem:]
    assert "invoke rollouts.retry 20261121T163000Z-4f2a --cluster us-east5" in text[problem:]
    assert "What needs a person" not in page_of(four_good()).text


def test_the_timeline_has_every_try_with_its_words_and_time() -> None:
    page = page_of(failing_canary())
    titles = [a["title"] or "" for a in page.all("i") if "title" in a]
    assert "snapshot 5.1 s, from 16:30:03" in titles
    assert "start failed 1 min 12 s, from 16:30:43" in titles
    assert "back: start 48 s, from 16:32:25" in titles
    (track,) = [a for a in page.all("span", "track") if a.get("role") == "img"]
    assert (track["aria-label"] or "").startswith("preflight 3.1 s, snapshot 5.1 s")
    segments = [a["class"] or "" for a in page.all("i") if "title" in a]
    assert sum(" b" in each for each in segments) == len(Step)
    assert "s6 x" in segments
    assert "on the way back" in page.text


def test_kills_retries_and_breaks_show_in_the_timeline() -> None:
    page = page_of(killed_and_resumed())
    classes = [a["class"] or "" for a in page.all("i") if "title" in a]
    assert {"s4 c", "s6 c", "s6 t", "s7 x", "s7 t", "bake"} <= set(classes)
    titles = [a["title"] or "" for a in page.all("u")]
    assert titles[0].startswith("nobody drove it for 14 h")
    for words in ("cut off by a kill", "tried again", "its process was killed", "then bob@laptop"):
        assert words in page.text
    assert "retry us-east5 by bob@laptop" in page.text


def test_a_lane_unfolds_to_gates_image_and_workers() -> None:
    text = page_of(four_good()).text
    assert "ssh: it answers; health: GCS and head are well; workers: 8" in text
    assert "sha256:3c9a3c9a3c9a -> sha256:d41ed41ed41e" in text
    assert "8 v6e-128" in text
    story = Story(make_plan([Wave(name="1", clusters=("a",))], [make_target("a")]))
    story.begin()
    seen = {"owed": [], "unpreservable": ["driver of notebook-3"]}
    promoted = {"promoted": "bob@laptop"}
    story.run(1, "a", outputs={Step.SNAPSHOT: seen, Step.GATES: promoted})
    text = page_of(story.example()).text
    assert "taken as passed by bob@laptop" in text
    assert "driver of notebook-3" in text


def test_segments_lie_within_the_axis_and_in_order() -> None:
    page = page_of(four_good())
    for attributes in page.all("i"):
        found = re.fullmatch(r"left:([\d.]+)%;width:([\d.]+)%", attributes.get("style") or "")
        if found:
            assert 0 <= float(found[1]) <= float(found[1]) + float(found[2]) <= 100.02


def test_300_clusters_stay_small_and_waves_without_trouble_are_folded() -> None:
    example = big_fleet()
    text = html_report(example.plan, example.state, example.records)
    page = Page(text)
    assert len(text) < 1_000_000
    waves = page.all("details", "wave")
    assert ["open" in wave for wave in waves] == [True, True, True, False]
    assert len(page.all("details", "lane")) == 151
    assert "149 clusters not begun" in page.text


def test_a_page_of_a_rollout_that_goes_on_or_never_began_can_be_read() -> None:
    for number in (0, 1, 9, 30):
        example = four_good().until(number)
        assert "not finished" in page_of(example).text
        assert "not finished" in text_report(example.plan, example.state, example.records)


def test_bare_texts_and_attributes_are_escaped() -> None:
    made = el("p", "<b>", el("i", '"'), [["&", None]], title='"<', hidden=True, lang="", cls="x")
    assert made == ('<p title="&quot;&lt;" hidden class="x">&lt;b&gt;<i>&quot;</i>&amp;</p>')


def test_the_text_has_the_same_facts() -> None:
    example = failing_canary()
    lines = text_report(example.plan, example.state, example.records).splitlines()
    assert lines[0] == "rollout 20261121T163000Z-4f2a: failed"
    at = lines.index("what needs a person")
    assert lines[at + 1] == "  us-east5 (start): rolled back"
    assert lines[at + 5] == (
        "    next: invoke rollouts.retry 20261121T163000Z-4f2a --cluster us-east5"
    )
    assert any(
        line.startswith("us-east5 (us-east5-b, wave 1 canary): rolled back") for line in lines
    )
    assert "  image sha256:d41ed41ed41e, back to sha256:3c9a3c9a3c9a" in lines
    assert "  2 jobs, none lost" in lines
    assert "    eval-mmlu of bob: RUNNING -> restored (RUNNING)" in lines
    assert sum("  back: " in line for line in lines) == len(Step)
    assert Direction.BACK == "back"


def test_both_reports_are_written_for_their_owner_only(tmp_path: Path) -> None:
    example = four_good()
    page = write_reports(tmp_path, example.plan, example.state, example.records)
    assert page == tmp_path / "report.html"
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600, 0o600]
    assert page.read_text().startswith("<!doctype html>")
    assert (tmp_path / "report.txt").read_text().startswith("rollout ")
