"""HTTP over an SSH channel, when the connection below it goes away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from paramiko.ssh_exception import SSHException
from urllib3.exceptions import HTTPError

from rayfleet.cluster.tunnel import http_pool


class LostChannel:
    """A channel of a connection that is lost as soon as something is sent."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def settimeout(self, seconds: float | None) -> None:
        """Channels have one."""

    def fileno(self) -> int:
        return -1

    def sendall(self, data: bytes) -> None:
        raise self._error

    def shutdown(self, how: int) -> None:
        raise self._error

    def close(self) -> None:
        """Nothing is left to close."""


class Lost:
    """A transport whose channels are lost."""

    def __init__(self, error: Exception) -> None:
        self.open_channel: Callable[..., LostChannel] = lambda *_, **__: LostChannel(error)


@pytest.mark.parametrize("error", [EOFError(), SSHException("gone"), OSError("Socket is closed")])
def test_a_connection_that_is_lost_while_something_is_sent_is_an_http_error(
    error: Exception,
) -> None:
    """A head that died between two requests ended a whole rollout with an EOFError."""
    pool = http_pool(Lost(error), 8265, timeout=5.0)  # type: ignore[arg-type]
    with pytest.raises(HTTPError):
        pool.request("POST", "/api/jobs/x/stop")
