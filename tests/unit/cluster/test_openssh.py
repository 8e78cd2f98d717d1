"""Our configuration for OpenSSH's programs, as ssh itself understands it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rayfleet.cluster.head import HeadAddress
from rayfleet.cluster.openssh import configuration, entry
from rayfleet.errors import UsageError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPUHODfVrlx7GzfyGe3FbGof/j0pqgVCYfo8DvOxlF7q"

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ho me"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def address(home: Path, **changes: object) -> HeadAddress:
    fields: dict[str, object] = {
        "cluster": "us-east5",
        "host": "10.1.2.3",
        "user": "ray",
        "private_key": home / "a key",
        "known_hosts": home / "our known",
        "alias": "marin-us-east5",
    }
    return HeadAddress(**(fields | changes))  # type: ignore[arg-type]


def understood(where: HeadAddress, host: str = "", *, ask: bool = False) -> dict[str, list[str]]:
    """What ``ssh -G`` makes of it: the values of every option, by its name in small letters."""
    with entry(where, ask=ask) as way:
        words = [*way.program(), "-G", host or where.host]
        text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


@needs_ssh
def test_what_the_address_says_wins_and_the_rest_is_the_operators(home: Path) -> None:
    (home / "our known").write_text(f"marin-us-east5 {KEY}\n")
    (home / ".ssh" / "config").write_text(
        "Host 10.*\n User else\n Port 2222\n HostName 10.9.9.9\n ForwardAgent yes\n"
        " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n ProxyJump bastion\n"
    )
    seen = understood(address(home, proxy_command="nc --to '%h' %p"))
    assert {name: seen[name][0] for name in ("user", "port", "hostname", "hostkeyalias")} == {
        "user": "ray",
        "port": "2222",
        "hostname": "10.9.9.9",
        "hostkeyalias": "marin-us-east5",
    }
    assert seen["stricthostkeychecking"] == ["true"]
    assert seen["userknownhostsfile"] == [f"{home}/our known"]
    assert seen["identityfile"][0] == f"{home}/a key"
    assert seen["identitiesonly"] == ["yes"]
    assert seen["batchmode"] == ["yes"]
    assert seen["forwardagent"] == ["yes"]
    assert seen["proxycommand"] == ["nc --to %h %p"]
    assert "proxyjump" not in seen


@needs_ssh
def test_a_jump_host_gets_the_strictness_and_nothing_else_of_ours(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host bastion\n User me\n StrictHostKeyChecking no\n")
    seen = understood(address(home, proxy_command="nc %h %p"), "bastion")
    assert seen["stricthostkeychecking"] == ["true"]
    assert seen["user"] == ["me"]
    assert "proxycommand" not in seen
    assert "hostkeyalias" not in seen
    assert seen["userknownhostsfile"] == [f"{home}/.ssh/known_hosts"]


@needs_ssh
def test_an_empty_address_leaves_everything_to_the_operator(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n User me\n IdentityFile /my/key\n")
    seen = understood(address(home, user="", private_key=None), ask=True)
    assert (seen["user"], seen["identityfile"]) == (["me"], ["/my/key"])
    assert (seen["identitiesonly"], seen["batchmode"]) == (["no"], ["no"])


@needs_ssh
def test_a_key_that_only_the_operator_knows_is_looked_up_by_the_name_it_has_there(
    home: Path,
) -> None:
    assert "hostkeyalias" not in understood(address(home))
    (home / ".ssh" / "known_hosts").write_text(f"marin-us-east5 {KEY}\n")
    seen = understood(address(home))
    assert seen["hostkeyalias"] == ["marin-us-east5"]
    assert seen["userknownhostsfile"] == [f"{home}/.ssh/known_hosts"]


@pytest.mark.parametrize("command", ["nc 'unbalanced", " ", "nc 'a\nb'"])
def test_a_proxy_command_that_cannot_be_written_down_is_refused(home: Path, command: str) -> None:
    with pytest.raises(UsageError, match="proxy command"):
        configuration(address(home, proxy_command=command), ask=False)


def test_the_file_is_gone_afterwards_and_nobody_else_may_read_it(home: Path) -> None:
    with entry(address(home), ask=False) as way:
        assert way.config.parent.stat().st_mode & 0o077 == 0
        assert way.ssh("uptime", options=["-q"])[1:] == [
            *("-F", str(way.config), "-q", "--", "10.1.2.3", "uptime")
        ]
        assert way.remote("a b") == "10.1.2.3:a b"
    assert not way.config.exists()
    with entry(address(home, host="fd00::1"), ask=False) as way:
        assert way.remote("/x") == "[fd00::1]:/x"
