"""What is read, and the number of lines to start with."""

from __future__ import annotations

from rayfleet.log.sources import Reading


def test_the_autoscaler_writes_three_files() -> None:
    assert list(Reading().commands(tail=3)) == ["monitor.log", "monitor.out", "monitor.err"]
