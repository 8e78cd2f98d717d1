"""How a registry's challenges are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.image.oci.authorization import Challenge, deleting, pulling, pushing


@pytest.mark.parametrize(
    ("header", "scheme", "parameters"),
    [
        ('Basic realm="test"', "basic", {"realm": "test"}),
        ("Basic", "basic", {}),
        ("", "", {}),
        ("Negotiate", "negotiate", {}),
        (
            'Bearer realm="https://a/t",service="a b",scope="repository:x:pull,push"',
            "bearer",
            {"realm": "https://a/t", "service": "a b", "scope": "repository:x:pull,push"},
        ),
        (
            "bearer Realm=https://a/t , service=s",
            "bearer",
            {"realm": "https://a/t", "service": "s"},
        ),
        (
            'Basic realm="x, Bearer y", Bearer realm="https://a/t"',
            "bearer",
            {"realm": "https://a/t"},
        ),
        ('Digest realm="x", Basic realm="a\\"b"', "basic", {"realm": 'a"b'}),
    ],
)
def test_the_best_challenge_is_taken(header: str, scheme: str, parameters: dict[str, str]) -> None:
    assert Challenge.parse(header) == Challenge(scheme=scheme, parameters=parameters)


@given(st.text(alphabet='Bearc realm="\\,x ') | st.text())
def test_no_challenge_is_too_odd(header: str) -> None:
    assert isinstance(Challenge.parse(header).scheme, str)


def test_scopes_are_as_token_servers_write_them() -> None:
    assert pulling("p/r") == "repository:p/r:pull"
    assert pushing("p/r") == "repository:p/r:pull,push"
    assert deleting("p/r") == "repository:p/r:pull,push,delete"
