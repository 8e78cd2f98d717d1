"""No secret in what is printed of a job, and nothing else lost."""

from __future__ import annotations

import json
import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.job.redaction import (
    MASK,
    looks_secret,
    redacted,
    redacted_log,
    redacted_values,
    secrets_of,
)

HEX = "0123456789abcdef" * 3

MASKED = [
    ("HF_TOKEN=abc123 python x.py", "HF_TOKEN=*** python x.py"),
    ("env WANDB_API_KEY=" + HEX[:40] + " true", "env WANDB_API_KEY=*** true"),
    ("python x.py --api-key sekret --lr 3", "python x.py --api-key *** --lr 3"),
    ("python x.py --api_key=sekret --lr 3", "python x.py --api_key=*** --lr 3"),
    ("tool -token sekret", "tool -token ***"),
    ("tool --password 'two words' x", "tool --password '***' x"),
    ("tool --password -dashed- x", "tool --password *** x"),
    ("TOKEN='a b' x", "TOKEN='***' x"),
    ('TOKEN="a \\" b" x', 'TOKEN="***" x'),
    ("TOKEN=abc'd e'f x", "TOKEN=*** x"),
    ("TOKEN=a\\ b x", "TOKEN=*** x"),
    ("TOKEN=p}w]d x", "TOKEN=*** x"),
    ("PGPASSWORD=1234 psql", "PGPASSWORD=*** psql"),
    ("SECRET_ID=1234", "SECRET_ID=***"),
    ("bash -c 'run TOKEN=abc' && echo 'z'", "bash -c 'run TOKEN=***' && echo 'z'"),
    ('bash -c "TOKEN=\\"a b\\" x"', 'bash -c "TOKEN=\\"***\\" x"'),
    ('{"WANDB_API_KEY": "abc", "x": 1}', '{"WANDB_API_KEY": "***", "x": 1}'),
    ('{"TOKEN":"abc","x":"y"}', '{"TOKEN":"***","x":"y"}'),
    ("{'clientSecret': 'abc', 'x': 'y'}", "{'clientSecret': '***', 'x': 'y'}"),
    ('["--token", "abc", "y"]', '["--token", "***", "y"]'),
    ("(token=abc)", "(token=***)"),
    ("TOKEN = abc", "TOKEN = ***"),
    ("TOKEN=abc&x=y", "TOKEN=***&x=y"),
    ('TOKEN="abc def', "TOKEN=***"),
    ("https://me:pa@ss@host/x", "https://***@host/x"),
    ("git+https://tok@github.com/x", "git+https://***@github.com/x"),
    ("https://h/x?sig=1&X-Goog-Signature=abc&y=2", "https://h/x?sig=1&X-Goog-Signature=***&y=2"),
    ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
    ("Authorization: Basic dXNlcg==", "Authorization: Basic ***"),
    ("curl -H 'X-Api-Key: abc' http://x", "curl -H 'X-Api-Key: ***' http://x"),
    ("wandb login --relogin " + HEX[:40], "wandb login --relogin ***"),
    ("x hf_abcdefghij0123456789 y", "x *** y"),
    ("x ghp_abcdefghij0123456789 y", "x *** y"),
    ("x github_pat_11ABCDE_abcdefghij y", "x *** y"),
    ("x glpat-abcdefghij0123456789 y", "x *** y"),
    ("x sk-proj-abcdefghij0123456789 y", "x *** y"),
    ("x AKIAABCDEFGHIJKLMNOP y", "x *** y"),
    ("x ya29.a0Abc-def y", "x *** y"),
    ("x xoxb-123-abc y", "x *** y"),
    ("x AIza" + "a" * 35 + " y", "x *** y"),
    ("x eyJhbGciOiJIUzI1.eyJzdWIiOiIx.sig y", "x *** y"),
    ("-----BEGIN RSA PRIVATE KEY-----\nab\n-----END RSA PRIVATE KEY-----\nx", "***\nx"),
]

KEPT = [
    "python train.py --num-keys 3 --max-tokens 4096 --pad-token-id 0 num_key_value_heads=8",
    "tokens_per_batch: 4096, keys: 12",
    "tokenizer=gpt2 author=me keyboard=us monk=y",
    "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/run/token KEY_FILE=/x",
    "use_auth_token=True token=None",
    "--auth --foo bar",
    "ssh://git@github.com/x http://127.0.0.1:8265/api",
    "sk-learn-with-a-long-dashed-name hf_transfer hf_hub_download",
    "gcs://_ray_pkg_" + HEX + ".zip sha256:" + HEX,
    "echo a; sleep 1 && python -c 'print(1)'",
    "",
]


@pytest.mark.parametrize(("text", "expected"), MASKED)
def test_what_looks_secret_is_masked_and_the_rest_is_kept(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize("text", KEPT)
def test_what_only_resembles_a_secret_is_kept(text: str) -> None:
    assert redacted(text) == text


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=4, max_size=30), st.text())
def test_a_given_secret_is_masked_in_every_spelling(secret: str, around: str) -> None:
    if secret in MASK * 20 or MASK in secret:
        return
    text = "\n".join((around, secret, json.dumps(secret), repr(secret)))
    found = redacted(text, [secret])
    assert secret not in found.replace(MASK, "\0")
    assert json.dumps(secret)[1:-1] not in found.replace(MASK, "\0")


HARMLESS = {"", "true", "false", "none", "null"}


def is_a_value(text: str) -> bool:
    """Neither another option nor one of the words that tell nothing."""
    return not text.startswith("-") and text.strip("\"'\\)]},.:").lower() not in HARMLESS


NAMES = st.sampled_from(["HF_TOKEN", "api_key", "db.password", "MY_SECRET_2", "X-Auth", "oauth"])
VALUES = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["C"]), min_size=5, max_size=20
).filter(is_a_value)


@given(NAMES, VALUES)
def test_a_variable_or_option_as_a_shell_or_json_would_quote_it_is_masked(
    name: str, value: str
) -> None:
    quoted = shlex.quote(value)
    for text in (
        f"{name}={quoted} run",
        f"run --{name} {quoted} end",
        f"run --{name}={quoted} end",
        json.dumps({name: value, "other": "x"}),
    ):
        assert value not in redacted(text), text


@given(st.text(max_size=200))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


def test_short_values_are_no_secrets_and_longer_ones_go_first() -> None:
    assert redacted("a 1 abcd abcdef", ["1", "abcd", "abcdef"]) == "a 1 *** ***"


def test_one_line_of_a_secret_of_many_is_masked() -> None:
    secret = "first-line-of-it\nsecond-line-of-it"
    assert redacted("it said: second-line-of-it", [secret]) == "it said: ***"


def test_the_entrypoint_at_the_top_of_a_log_is_masked_and_what_the_job_prints_is_not() -> None:
    entrypoint = "export TOKEN=abc\nrun"
    log = f"INFO -- Running entrypoint for job s1: {entrypoint}\nTOKEN=def\n"
    assert redacted_log(log, entrypoint) == log.replace("abc", MASK)


def test_metadata_is_masked_by_name_and_within_each_text() -> None:
    found = redacted_values({"owner": "me@here", "token": "abc", "command": "x --token abc"})
    assert found == {"owner": "me@here", "token": "***", "command": "x --token ***"}


def test_names_tell_which_variables_are_secret() -> None:
    assert secrets_of({"HF_TOKEN": "abcd", "LEVEL": "debug"}) == ("abcd",)
    assert looks_secret("apiKey")
    assert not looks_secret("")


@pytest.mark.parametrize("part", ["TOKEN=", "a", "'\"", "\\", "--key ", "://", "TOKEN='", '\\" '])
def test_a_long_odd_text_takes_no_time(part: str) -> None:
    text = part * 10_000
    began = time.process_time()
    redacted(text)
    assert time.process_time() - began < 5
