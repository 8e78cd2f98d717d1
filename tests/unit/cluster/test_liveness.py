"""The watch over a connection by itself; over SSH it is in integration/ssh/test_silence.py."""

from __future__ import annotations

from rayfleet.cluster.liveness import Answering


class Lost:
    """A channel through a jump host that is gone: closing it would send, and cannot."""

    closed = False

    def close(self) -> None:
        self.closed = True
        raise EOFError


def test_a_connection_through_a_jump_host_that_is_gone_closes_without_an_error() -> None:
    link = Lost()
    Answering(link, patience=1.0).close()
    assert link.closed
