"""Who is let in."""

from __future__ import annotations

import pytest

from rayfleet.dashboard.guard import Guard

GUARD = Guard(port=4000)
COOKIE = {GUARD.cookie: GUARD.secret}
OURS = {"Host": "127.0.0.1:5000"}
TAB = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}


def refusal(headers: dict[str, str], *, method: str = "GET", port: int = 5000) -> str:
    return GUARD.refusal(method, {**OURS, **headers}, COOKIE, port=port)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        ("POST", {}),  # a client that is no browser
        ("GET", {"Host": "localhost:5000"}),
        ("GET", {"Sec-Fetch-Site": "none", **TAB}),
        ("GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}),
        ("POST", {"Origin": "http://127.0.0.1:5000", "Sec-Fetch-Site": "same-origin"}),
        ("GET", {"Sec-Fetch-Site": "same-site", **TAB}),  # a link on our page
        ("GET", {"Sec-Fetch-Site": "cross-site", **TAB}),
    ],
)
def test_the_operators_browser_is_let_in(method: str, headers: dict[str, str]) -> None:
    assert refusal(headers, method=method) == ""


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example:5000", "127.0.0.1:4000", "127.0.0.1", "", "127.0.0.1:5000.evil.example"),
        *("[::1]:5000", "0.0.0.0:5000", "LOCALHOST:5000", "127.0.0.1:5000, evil.example"),
    ],
)
def test_another_name_for_this_address_is_refused(host: str) -> None:
    assert refusal({"Host": host}) == "this address is not ours"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"Origin": "http://127.0.0.1:6000"}),  # another cluster's dashboard
        ("GET", {"Origin": "http://localhost:5000"}),
        ("GET", {"Origin": "null"}),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"}),
        ("GET", {"Sec-Fetch-Site": "same-site", **FRAME}),
        ("POST", {"Sec-Fetch-Site": "same-site", **TAB}),
        ("POST", {"Sec-Fetch-Site": "cross-site", **TAB}),
    ],
)
def test_another_page_can_only_open_ours_in_a_tab(method: str, headers: dict[str, str]) -> None:
    assert refusal(headers, method=method) == "another page asked for this"


@pytest.mark.parametrize(
    "cookies",
    [
        {},
        {GUARD.cookie: ""},
        {GUARD.cookie: GUARD.secret[:-1]},
        {GUARD.cookie: "é\udcff"},
        {"rayfleet-5000": GUARD.secret},
        {"ray-authentication-token": GUARD.secret},
    ],
)
def test_without_the_secret_of_this_run_nobody_is_let_in(cookies: dict[str, str]) -> None:
    assert GUARD.refusal("GET", OURS, cookies, port=5000) == "the entry link is needed"


def test_the_entry_link_needs_no_cookie_but_the_right_address() -> None:
    entering = {"port": 5000, "entering": True}
    assert GUARD.refusal("GET", OURS, {}, **entering) == ""  # type: ignore[arg-type]
    assert GUARD.refusal("GET", {"Host": "evil.example"}, {}, **entering)  # type: ignore[arg-type]


def test_two_runs_have_different_secrets_and_cookies() -> None:
    other = Guard(port=4001)
    assert other.secret != GUARD.secret
    assert other.cookie != GUARD.cookie
    assert len(GUARD.secret) >= 43  # 256 bits
    assert GUARD.secret not in repr(GUARD)
