"""Where a registry may send us, and what may go there."""

from __future__ import annotations

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.image.oci.http import Http, authority, is_loopback
from rayfleet.image.oci.patience import Retries

FROM = "https://r.example.com/v2/p/r/blobs/uploads/"


def http(host: str) -> Http:
    return Http(host, retries=Retries())


@pytest.mark.parametrize(
    ("location", "url", "ours"),
    [
        ("/v2/up/1?a=%2Fb&c", "https://r.example.com/v2/up/1?a=%2Fb&c", True),
        ("1?x=y", f"{FROM}1?x=y", True),
        ("?x=y", f"{FROM}?x=y", True),
        ("https://r.example.com/up/1", "https://r.example.com/up/1", True),
        ("https://R.example.com:443/up/1", "https://r.example.com/up/1", True),
        ("//r.example.com/up/1#part", "https://r.example.com/up/1", True),
        ("http://r.example.com/up/1?q=1", "https://r.example.com/up/1?q=1", True),
        ("https://me:pw@r.example.com/up/1", "https://r.example.com/up/1", True),
        ("https://r.example.com:8443/up/1", "https://r.example.com:8443/up/1", False),
        ("https://store.example.com/1?sig=s", "https://store.example.com/1?sig=s", False),
        ("https://r.example.com.evil.example/1", "https://r.example.com.evil.example/1", False),
    ],
)  # fmt: skip
def test_a_location_may_be_relative_absolute_or_elsewhere(
    location: str, url: str, ours: bool
) -> None:
    registry = http("r.example.com")
    assert registry.url(location, seen_from=FROM) == url
    assert registry.is_ours(url) is ours


@pytest.mark.parametrize(
    "location",
    [
        "http://store.example.com/1?sig=hunter2",
        "ftp://me:hunter2@store.example.com/1",
        "https://[hunter2/",
        "https://r.example.com:hunter2/",
        "file:///hunter2",
    ],
)
def test_nothing_leads_out_of_tls_or_to_nowhere(location: str) -> None:
    with pytest.raises(ToolFailed, match=r"registry r\.example\.com sends us") as refused:
        http("r.example.com").url(location, seen_from=FROM)
    assert "hunter2" not in refused.value.text()


def test_loopback_registries_are_plain() -> None:
    registry = http("127.0.0.1:5000")
    assert registry.url("/v2/") == "http://127.0.0.1:5000/v2/"
    assert registry.url("http://127.0.0.1:6000/x") == "http://127.0.0.1:6000/x"
    assert not registry.is_ours("http://127.0.0.1:6000/x")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("localhost:5000", True), ("127.1.2.3:80", True), ("[::1]:80", True),
     ("r.example.com", False), ("localhost.example.com", False), ("10.0.0.1:5000", False)],
)  # fmt: skip
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_an_authority_is_host_and_port() -> None:
    assert authority("https://u:p@A.example:443/x") == "a.example"
    assert authority("http://a.example:443/x") == "a.example:443"
    assert authority("http://[::1]:5000/x") == "[::1]:5000"
