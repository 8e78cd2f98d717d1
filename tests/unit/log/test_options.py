"""The flags of tail-logs: defaults, and one clear error for each that cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayfleet.errors import UsageError
from rayfleet.log.options import Flags, Options, read_options

NOW = 1795162606.0


def read(**flags: Any) -> Options:
    return read_options(Flags(**flags), now=NOW)


def test_by_default_the_last_ten_lines_of_the_autoscaler_are_followed() -> None:
    request = read().request()
    assert request["patterns"][0] == {"glob": "monitor.log", "role": "autoscaler"}
    assert (request["tail"], request["follow"], request["first"]) == (10, True, True)
    assert (request["since"], request["until"], request["level"]) == (None, None, None)
    assert json.loads(json.dumps(request)) == request
    assert read().nodes == "head"


def test_between_two_times_all_lines_are_wanted() -> None:
    assert read(since="5m").tail == -1
    assert read(since="5m").since == NOW - 300
    assert read(until="5m").tail == -1
    assert read(since="5m", tail="3").tail == 3


def test_what_is_wanted_is_asked_of_the_nodes() -> None:
    request = read(
        include=["a", "b"], exclude=["c"], level="warn", until="1h", follow=False
    ).request()
    assert (request["include"], request["exclude"]) == (["a", "b"], ["c"])
    assert request["level"] == "WARN"
    assert request["until"] == NOW - 3600
    assert request["follow"] is False


def test_merging_has_a_window_of_its_own_and_of_the_operators() -> None:
    assert read().window is None
    assert read(merge=True).window == 2.0
    assert read(merge="500ms").window == 0.5


def test_nodes_are_those_of_the_logs_unless_others_are_named() -> None:
    assert read(log=["job:raysubmit_1"]).nodes == "all"
    assert read(log=["job:raysubmit_1"], nodes="head").nodes == "head"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"log": ["nothing"]}, "--log 'nothing' is no log"),
        ({"nodes": "tails"}, "--nodes 'tails' is not one of head, workers, all"),
        ({"tail": "many"}, "--tail 'many' is no number of lines"),
        ({"tail": "-2"}, "--tail '-2' is no number of lines"),
        ({"tail": "٣"}, "--tail '٣' is no number of lines"),
        ({"since": "soon"}, "--since 'soon' is no time"),
        ({"since": "2026-11-20T09:00:00Z"}, "--since .* lies in the future"),
        ({"since": "5m", "until": "10m"}, "--until '10m' lies before --since '5m'"),
        ({"until": "x"}, "--until 'x' is no time"),
        ({"include": ["("]}, r"--include '\(' is no regular expression: "),
        ({"include": [""]}, "--include is empty"),
        ({"exclude": ["a", "*"]}, r"--exclude '\*' is no regular expression: "),
        ({"highlight": ["["]}, r"--highlight '\[' is no regular expression: "),
        ({"fail_on": "("}, r"--fail-on '\(' is no regular expression"),
        ({"until_match": "("}, r"--until-match '\(' is no regular expression"),
        ({"level": "loud"}, "--level 'loud' is not one of DEBUG, INFO"),
        ({"level": "e"}, "--level 'e' is not one of"),
        ({"merge": "2"}, "--merge '2' is no duration"),
        ({"output": "xml"}, "--output 'xml' is not one of text, raw, jsonl"),
        ({"template": "{pod}"}, "--template '{pod}' cannot be used"),
        ({"color": "red"}, "--color 'red' is not one of auto, always, never"),
        ({"since": ""}, "--since '' is no time"),
        ({"merge": ""}, "--merge '' is no duration"),
        ({"level": ""}, "--level '' is not one of"),
        ({"template": ""}, "--template is empty"),
        ({"until_match": ""}, "--until-match is empty"),
        ({"output": "raw", "template": "{message}"}, "--template makes text; --output raw"),
        ({"output": "jsonl", "highlight": ["x"]}, "--highlight is for text; --output jsonl"),
    ],
)
def test_a_flag_that_cannot_be_is_one_clear_error(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(**flags)
    assert caught.value.code == 1
