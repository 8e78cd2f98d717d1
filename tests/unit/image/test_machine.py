"""What a build is told of the machine's network."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rayfleet.image import machine

PIP_CONFIG = """\
WARNING: a line that is no setting
:env:.default-timeout='180'
global.cert='/etc/ssl/corp.pem'
global.extra-index-url='file:///opt/simple https://extra.example.com/simple'
global.index-url='https://global.example.com/simple'
install.index-url="https://me:it's@install.example.com/simple"
freeze.timeout='10'
"""


def settings() -> dict[str, str]:
    return machine.parse_pip_settings(PIP_CONFIG.splitlines())


def test_pip_settings_are_merged_as_pip_does() -> None:
    assert settings() == {
        "cert": "/etc/ssl/corp.pem",
        "extra-index-url": "file:///opt/simple https://extra.example.com/simple",
        "index-url": "https://me:it's@install.example.com/simple",
        "default-timeout": "180",
    }


def test_uv_and_pip_get_what_pip_has_here_but_nothing_of_this_disk() -> None:
    found = machine.build_environment(settings(), has_bundle=True)
    assert found == {
        "PIP_INDEX_URL": "https://me:it's@install.example.com/simple",
        "UV_DEFAULT_INDEX": "https://me:it's@install.example.com/simple",
        "PIP_EXTRA_INDEX_URL": "https://extra.example.com/simple",
        "UV_INDEX": "https://extra.example.com/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "PIP_DEFAULT_TIMEOUT": "180",
        "UV_HTTP_TIMEOUT": "180",
        "PIP_CERT": machine.BUNDLE_IN_BUILD,
        "SSL_CERT_FILE": machine.BUNDLE_IN_BUILD,
    }


def test_a_machine_without_settings_asks_for_nothing() -> None:
    local = {"extra-index-url": "file:///opt/simple", "find-links": "/opt/wheels"}
    assert machine.build_environment(local, has_bundle=False) == {}


def test_the_exports_survive_a_shell() -> None:
    script = machine.shell_exports({"A": "it's $HOME `x`", "B": "2"}) + 'printf "%s|%s" "$A" "$B"'
    finished = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout == "it's $HOME `x`|2"


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 127\n"])
def test_without_a_working_pip_the_environment_counts(tmp_path: Path, program: str) -> None:
    if program:
        (tmp_path / "pip").write_text(program)
        (tmp_path / "pip").chmod(0o755)
    env = {"PATH": str(tmp_path), "PIP_INDEX_URL": "https://example.com", "HOME": "/"}
    assert machine.read_pip_settings(env) == {"index-url": "https://example.com"}


def test_the_bundle_is_the_first_that_is_there(tmp_path: Path) -> None:
    one, two = tmp_path / "one.pem", tmp_path / "two.pem"
    one.touch()
    two.touch()
    named = {"SSL_CERT_FILE": "/nonexistent", "REQUESTS_CA_BUNDLE": str(one)}
    assert machine.ca_bundle(named, pip_cert=str(two)) == one
    assert machine.ca_bundle({}, pip_cert=str(two)) == two


def test_proxies_are_passed_by_name() -> None:
    assert machine.proxy_variables({"https_proxy": "http://me:secret@p", "HTTP_PROXY": ""}) == (
        "https_proxy",
    )
