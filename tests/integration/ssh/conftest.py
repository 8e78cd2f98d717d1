"""A real sshd, and a home without anybody's keys or ssh_config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sshd import LocalSshd


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's home: empty."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[LocalSshd]:
    """A running sshd that ends with the test."""
    server = LocalSshd(folder=tmp_path / "sshd")
    server.start()
    yield server
    server.stop()
