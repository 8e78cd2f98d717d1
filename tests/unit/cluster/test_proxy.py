"""How a proxy command becomes an argument list."""

from __future__ import annotations

import pytest

from rayfleet.cluster.proxy import expanded
from rayfleet.errors import UsageError

TOKENS = {"h": "head; rm -rf $(x)", "p": "2222"}


def test_a_host_name_stays_one_argument_whatever_is_in_it() -> None:
    argv = expanded("docker exec -i %h /usr/sbin/sshd -i", TOKENS)
    assert argv == ["docker", "exec", "-i", "head; rm -rf $(x)", "/usr/sbin/sshd", "-i"]


def test_tokens_are_replaced_inside_words_and_percent_is_escaped_by_itself() -> None:
    assert expanded("nc -x 'a b' h=%h:%p 100%% %%h", TOKENS) == [
        "nc",
        "-x",
        "a b",
        "h=head; rm -rf $(x):2222",
        "100%",
        "%h",
    ]


@pytest.mark.parametrize("command", ["nc '%h", "nc %z", ""])
def test_a_command_that_cannot_be_read_is_a_usage_error(command: str) -> None:
    with pytest.raises(UsageError):
        expanded(command, TOKENS)
