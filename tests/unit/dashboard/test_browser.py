"""How the page is opened."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from rayfleet.dashboard.browser import can_show, open_link

LINK = "http://127.0.0.1:4000/enter?key=secret&more"


def test_the_secret_is_in_a_private_file_and_on_no_command_line(tmp_path: Path) -> None:
    given: list[str] = []

    def opened(address: str) -> bool:
        given.append(address)
        return True

    door = tmp_path / "state" / "dashboard.html"
    assert open_link(LINK, door, opened)
    assert given == [door.as_uri()]
    assert stat.S_IMODE(door.stat().st_mode) == 0o600
    assert "0;url=http://127.0.0.1:4000/enter?key=secret&amp;more" in door.read_text()


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has a screen")
def test_without_a_screen_no_browser_is_started() -> None:
    # A text browser would take the terminal away.
    assert not can_show({})
    assert can_show({"DISPLAY": ":0"})
    assert can_show({"WAYLAND_DISPLAY": "wayland-0"})
