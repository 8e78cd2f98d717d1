"""Messages to a real HTTP server, which answers well, late, badly, or not at all."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rayfleet.fleet.model import Notify, NotifyKind
from rayfleet.rollout.fold import apply, begin
from rayfleet.rollout.model import Wave
from rayfleet.rollout.tell.webhook import Patience, Webhook
from rayfleet.waiting import wait_until
from tests.support.rollout_examples import (
    Example,
    Story,
    big_fleet,
    failing_canary,
    four_good,
    killed_and_resumed,
    make_job,
    make_plan,
    make_target,
)
from tests.support.scripted_http import Answer, Asked, ScriptedServer, scripted_server

pytestmark = pytest.mark.integration

SECRET = "/services/T0123/B4567/s3cr3tPathOfTheHook"
QUERY = "?token=alsoSecret"
QUICK = Patience(connect=5, answer=20, at_end=30, attempts=3, first_wait=0.01)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that says 200 until told otherwise."""
    with scripted_server() as state:
        state.script = [Answer(body=b"ok")]
        yield state


class Said:
    """A webhook under test and what it has said."""

    def __init__(
        self,
        example: Example,
        url: str | None,
        *,
        kind: NotifyKind = NotifyKind.SLACK,
        patience: Patience = QUICK,
        report: str = "r/report.html",
    ) -> None:
        self.example = example
        self.lines: list[str] = []
        self.hook = Webhook(
            Notify(kind=kind, url_env="TEAM_HOOK"),
            example.plan,
            say=self.lines.append,
            environ={"TEAM_HOOK": url} if url is not None else {},
            report=report,
            patience=patience,
        )

    def play(self) -> None:
        """Tell it everything."""
        state = begin(self.example.plan)
        for record in self.example.records:
            state = apply(self.example.plan, state, record)
            self.hook.hear(record, state)
            self.hook.detail(record.cluster, "working")


def url(server: ScriptedServer) -> str:
    """The secret URL of the hook."""
    return f"http://{server.host}{SECRET}{QUERY}"


def bodies(server: ScriptedServer) -> list[dict[str, Any]]:
    """What was posted."""
    return [json.loads(asked.body) for asked in server.asked]


def test_slack_gets_a_text_before_and_after(server: ScriptedServer) -> None:
    said = Said(failing_canary(), url(server))
    said.play()
    said.hook.close()
    assert said.lines == []
    assert server.sent() == [f"POST {SECRET}{QUERY}"] * 2
    assert {asked.headers["Content-Type"] for asked in server.asked} == {"application/json"}
    before, after = bodies(server)
    assert before.keys() == after.keys() == {"text"}
    assert "begins: 3 clusters in 2 waves" in before["text"]
    assert "- bob: eval-mmlu on us-east5" in before["text"]
    assert "failed after 3 min 58 s: 1 rolled back, 2 not begun" in after["text"]
    assert "next: invoke rollouts.retry" in after["text"]
    assert "report: r/report.html" in after["text"]


def test_no_name_calls_a_channel(server: ScriptedServer) -> None:
    job = make_job("<!channel> & @everyone", "bob")
    plan = make_plan([Wave(name="1", clusters=("a",))], [make_target("a", [job])])
    for kind in (NotifyKind.SLACK, NotifyKind.DISCORD):
        story = Story(plan)
        story.begin()
        said = Said(story.example(), url(server), kind=kind)
        said.play()
        said.hook.close()
    slack, discord = bodies(server)[0], bodies(server)[2]
    assert "&lt;!channel&gt; &amp; @everyone" in slack["text"]
    assert discord["allowed_mentions"] == {"parse": []}
    assert "<!channel> & @everyone" in discord["content"]


def test_discord_gets_at_most_2000_characters(server: ScriptedServer) -> None:
    said = Said(big_fleet(), url(server), kind=NotifyKind.DISCORD)
    said.play()
    said.hook.close()
    contents = [body["content"] for body in bodies(server)]
    assert all(len(content) <= 2000 for content in contents)
    assert contents[0].startswith("rollout 20261121T163000Z-4f2a of infra/fleet.yaml begins: 300")


def test_json_gets_the_plan_the_pauses_and_the_summary(server: ScriptedServer) -> None:
    said = Said(killed_and_resumed(), url(server), kind=NotifyKind.JSON)
    said.play()
    said.hook.close()
    documents = bodies(server)
    events = [document["event"] for document in documents]
    assert events == ["begun", "resumed", "paused", "resumed", "finished"]
    assert documents[0]["waves"][0] == {"name": "staging", "clusters": ["us-central2"]}
    assert documents[0]["jobs"][0]["owner"] == "ana"
    assert documents[2]["reason"] == "us-east5 has failed"
    assert documents[2]["clusters"]["us-east5"]["outcome"] == "failed"


def test_every_run_ends_with_a_message_even_a_broken_one(server: ScriptedServer) -> None:
    said = Said(four_good().until(20), url(server), kind=NotifyKind.JSON)
    said.play()
    said.hook.close()
    assert [document["event"] for document in bodies(server)] == ["begun", "interrupted"]


def test_a_hiccup_of_the_server_is_tried_again(server: ScriptedServer) -> None:
    server.script = [Answer(status=500), Answer(how="cut"), Answer()]
    said = Said(four_good(), url(server))
    said.play()
    said.hook.close()
    assert said.lines == []
    assert len(server.asked) == 4
    assert "begins" in bodies(server)[2]["text"]
    assert "done after" in bodies(server)[3]["text"]


@pytest.mark.parametrize(
    ("answer", "why", "tries"),
    [
        (Answer(status=500, body=b"no"), "HTTP 500", 3),
        (Answer(status=404, body=SECRET.encode()), "HTTP 404", 1),
        (
            Answer(status=302, headers={"Location": f"http://127.0.0.1:1{SECRET}"}),
            "HTTP 302: it redirects, which is not followed; use the final URL",
            1,
        ),
    ],
)
def test_a_server_that_refuses_is_one_line_per_message(
    server: ScriptedServer, answer: Answer, why: str, tries: int
) -> None:
    server.script = [answer]
    said = Said(four_good(), url(server))
    said.play()
    said.hook.close()
    assert said.lines == [f"webhook: a message was not delivered: {why}"] * 2
    assert len(server.asked) == 2 * tries
    assert_no_secret(said.lines, server.host)


def test_a_server_that_is_not_there_is_one_line_per_message() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        said = Said(four_good(), f"http://{host}{SECRET}")
        said.play()
        said.hook.close()
    assert said.lines == ["webhook: a message was not delivered: Connection refused"] * 2
    assert_no_secret(said.lines, host)


def test_a_server_that_does_not_answer_yet_holds_up_nobody(server: ScriptedServer) -> None:
    free = threading.Event()

    def respond(asked: Asked) -> Answer:
        free.wait(120)
        return Answer()

    server.respond = respond
    said = Said(four_good(), url(server), patience=Patience(answer=120, at_end=0.2))
    said.play()
    said.hook.close()
    assert not free.is_set()
    assert said.lines == ["webhook: no answer within 0.2 s to the last message"]
    free.set()
    wait_until(lambda: len(server.asked) == 2, what="both messages", timeout=60, interval=0.02)


def test_a_server_that_never_answers_is_one_line_per_message(server: ScriptedServer) -> None:
    server.script = [Answer(how="stall")]
    patience = Patience(answer=0.3, at_end=60, attempts=1)
    said = Said(four_good(), url(server), patience=patience)
    said.play()
    said.hook.close()
    assert len(said.lines) == 2
    assert all("timed out" in line for line in said.lines)
    assert_no_secret(said.lines, server.host)


def test_of_too_many_messages_the_last_arrives(server: ScriptedServer) -> None:
    free = threading.Event()

    def respond(asked: Asked) -> Answer:
        free.wait(60)
        return Answer()

    server.respond = respond
    story = Story(four_good().plan)
    for number in range(20):
        story.begin(float(number))
    said = Said(story.finish(30.0), url(server), kind=NotifyKind.JSON)
    said.play()
    free.set()
    said.hook.close()
    events = [document["event"] for document in bodies(server)]
    assert len(events) <= 10
    assert events[-1] == "finished"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "nobody is told: the environment variable TEAM_HOOK is not set"),
        ("  ", "nobody is told: the environment variable TEAM_HOOK is not set"),
        (f"file://{SECRET}", "nobody is told: TEAM_HOOK holds no http or https URL"),
        (f"https://[{SECRET}", "nobody is told: TEAM_HOOK holds no http or https URL"),
        (f"hooks.example{SECRET}", "nobody is told: TEAM_HOOK holds no http or https URL"),
    ],
)
def test_a_variable_without_a_url_is_one_line(value: str | None, why: str) -> None:
    said = Said(four_good(), value)
    said.play()
    said.hook.close()
    assert said.lines == [f"webhook: {why}"]


def test_the_url_is_not_logged_even_for_debugging(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = Said(four_good(), url(server))
    said.play()
    said.hook.close()
    assert len(server.asked) == 2
    assert_no_secret([record.getMessage() for record in caplog.records], server.host)
    assert "s3cr3t" not in repr(vars(said.hook)["_queue"])


def test_the_proxy_of_the_machine_is_used(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "no_proxy", "NO_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://{server.host}")
    monkeypatch.setenv("http_proxy", f"http://{server.host}")
    said = Said(four_good(), f"http://hooks.test.invalid{SECRET}")
    said.play()
    said.hook.close()
    assert said.lines == []
    assert server.sent() == [f"POST http://hooks.test.invalid{SECRET}"] * 2


def test_a_host_that_has_no_address_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    said = Said(four_good(), f"http://secret-host.invalid{SECRET}")
    said.play()
    said.hook.close()
    assert len(said.lines) == 2
    assert_no_secret(said.lines, "secret-host")


def assert_no_secret(lines: list[str], host: str) -> None:
    """Nothing of the URL is in ``lines``."""
    text = "\n".join(lines)
    for part in (SECRET, "s3cr3t", "T0123", "alsoSecret", host):
        assert part not in text
