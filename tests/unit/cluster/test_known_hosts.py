"""Host keys in OpenSSH's format, checked against OpenSSH's own ssh-keygen."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from rayfleet.cluster.known_hosts import forget_host, lookup, record_host_key
from rayfleet.errors import UsageError

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJHp2QQ5YvQm7P3C7a8D0l0kqf4d1kQbqJm3N6r0M0aS"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "known_hosts"


def data_of(key: str) -> str:
    return key.split()[1]


def test_a_recorded_key_is_found_under_its_alias_only(file: Path) -> None:
    record_host_key(file, "head-a", f"{ED25519} root@somewhere\n")
    assert [key.data for key in lookup(file, "head-a")] == [data_of(ED25519)]
    assert lookup(file, "head-b") == ()


def test_recording_again_replaces_the_key_and_keeps_the_other_lines(file: Path) -> None:
    record_host_key(file, "head-a", ED25519)
    record_host_key(file, "head-b", ED25519)
    file.write_text("# by hand\n" + file.read_text())
    record_host_key(file, "head-a", OTHER)
    assert [key.data for key in lookup(file, "head-a")] == [data_of(OTHER)]
    assert [key.data for key in lookup(file, "head-b")] == [data_of(ED25519)]
    assert file.read_text().startswith("# by hand\n")


def test_a_shared_line_loses_only_the_replaced_name(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(f"head-a,head-b {ED25519}\n")
    record_host_key(file, "head-a", OTHER)
    assert [key.data for key in lookup(file, "head-a")] == [data_of(OTHER)]
    assert [key.data for key in lookup(file, "head-b")] == [data_of(ED25519)]


def test_a_forgotten_host_has_no_key(file: Path) -> None:
    forget_host(file, "head-a")
    assert not file.exists()
    record_host_key(file, "head-a", ED25519)
    forget_host(file, "head-a")
    assert lookup(file, "head-a") == ()


@pytest.mark.parametrize(
    "line", ["", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-rsa " + data_of(OTHER)]
)
def test_what_is_no_key_is_refused_and_nothing_is_written(file: Path, line: str) -> None:
    with pytest.raises(UsageError):
        record_host_key(file, "head-a", line)
    assert not file.exists()


def test_what_is_recorded_already_is_not_written_again(file: Path) -> None:
    record_host_key(file, "head-a", ED25519)
    record_host_key(file, "head-b", OTHER)
    written = file.stat()
    record_host_key(file, "head-a", ED25519)
    forget_host(file, "head-c")
    # Written atomically, it would be another file.
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.parametrize("alias", ["", "two words", "a,b", "*", "!a", "@revoked", "#a"])
def test_an_alias_that_known_hosts_would_misread_is_refused(file: Path, alias: str) -> None:
    with pytest.raises(UsageError):
        record_host_key(file, alias, ED25519)


def test_parallel_writers_lose_no_entry(file: Path) -> None:
    names = [f"head-{number}" for number in range(8)]
    threads = [
        threading.Thread(target=record_host_key, args=(file, name, ED25519)) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(lookup(file, name) for name in names)


def test_hashed_wildcard_and_revoked_entries_are_understood(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(f"secret.example.com {ED25519}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "secret" not in file.read_text()
    with file.open("a") as handle:
        handle.write(f"*.lab,!bad.lab {OTHER}\n@revoked old.lab {ED25519}\n")
        handle.write(f"@cert-authority *.lab {ED25519}\nnot a key\n")
    assert [key.data for key in lookup(file, "secret.example.com")] == [data_of(ED25519)]
    assert [key.data for key in lookup(file, "good.lab")] == [data_of(OTHER)]
    assert lookup(file, "bad.lab") == ()
    assert {(key.data, key.revoked) for key in lookup(file, "old.lab")} == {
        (data_of(OTHER), False),
        (data_of(ED25519), True),
    }


def test_openssh_reads_our_file_and_agrees_on_the_fingerprint(file: Path) -> None:
    record_host_key(file, "head-a", ED25519)
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-F", "head-a", "-f", str(file)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert lookup(file, "head-a")[0].fingerprint in shown
