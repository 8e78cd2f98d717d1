"""What a header meets on its way through the proxy."""

from __future__ import annotations

from rayfleet.dashboard.proxy import forwarded, returned


def test_headers_about_the_connection_end_at_the_proxy() -> None:
    headers = [
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Accept", "a"),
        ("Accept", "b"),
    ]
    assert list(forwarded(headers, None).items()) == [("Accept", "a"), ("Accept", "b")]
    kept = returned(headers)
    assert kept.getall("Accept") == ["a", "b"]
    assert not {"Connection", "X-Hop", "Transfer-Encoding"} & set(kept)


def test_the_token_replaces_whatever_the_browser_sent() -> None:
    headers = [("authorization", "Bearer other"), ("COOKIE", "a=b"), ("Host", "127.0.0.1:5000")]
    assert list(forwarded(headers, "mine").items()) == [("Authorization", "Bearer mine")]
    assert list(forwarded(headers, None).items()) == []


def test_a_redirect_to_rays_own_address_stays_on_this_one() -> None:
    def location(sent: str) -> str:
        return returned([("Location", sent)])["Location"]

    assert location("http://127.0.0.1:8265/a?b=1") == "/a?b=1"
    assert location("/a") == "/a"
    assert location("http://127.0.0.1:82650/a") == "http://127.0.0.1:82650/a"
    assert location("https://docs.ray.io/") == "https://docs.ray.io/"


def test_no_cookie_of_rays_comes_back_and_nobody_may_frame_it() -> None:
    kept = returned([("Set-Cookie", "a=b"), ("set-cookie", "c=d"), ("ETag", "1")])
    assert dict(kept) == {"ETag": "1", "X-Frame-Options": "SAMEORIGIN"}
    assert returned([("X-Frame-Options", "DENY")])["X-Frame-Options"] == "DENY"
