"""A sandbox's own files."""

from __future__ import annotations

import json
from pathlib import Path

import bcrypt
import paramiko
import pytest

from rayfleet.sandbox.base_image import debian_mirror
from rayfleet.sandbox.place import Place, ensure_key, ensure_password, write_credentials


def test_two_state_folders_are_two_sandboxes(tmp_path: Path) -> None:
    one, other = Place(tmp_path / "a" / "sandbox"), Place(tmp_path / "b" / "sandbox")
    assert one.id != other.id
    assert one.id == Place(tmp_path / "a" / "sandbox").id
    assert one.network != other.network


def test_key_and_password_are_made_once_and_closed_to_others(tmp_path: Path) -> None:
    place = Place(tmp_path)
    ensure_key(place)
    first = place.private_key.read_bytes()
    ensure_key(place)
    assert place.private_key.read_bytes() == first
    assert place.private_key.stat().st_mode & 0o777 == 0o600
    key = paramiko.Ed25519Key.from_private_key_file(str(place.private_key))
    assert key.get_base64() == place.public_key.read_text().split()[1]
    password = ensure_password(place)
    assert ensure_password(place) == password
    user, _, hashed = place.htpasswd.read_text().strip().partition(":")
    assert user == "rayfleet"
    assert bcrypt.checkpw(password.encode(), hashed.encode())
    write_credentials(place, ["127.0.0.1:1"], password)
    assert place.credentials.stat().st_mode & 0o777 == 0o600
    assert json.loads(place.credentials.read_text())["127.0.0.1:1"]["password"] == password


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("sources.list", "deb [arch=amd64] http://mirror.invalid/debian bookworm main"),
        ("sources.list.d/debian.sources", "URIs: http://mirror.invalid/debian/"),
    ],
)
def test_the_mirror_is_the_one_of_this_machines_apt(tmp_path: Path, file: str, line: str) -> None:
    target = tmp_path / file
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"# deb http://old.invalid/debian x\n{line}\n")
    assert debian_mirror(tmp_path) == "http://mirror.invalid/debian"


def test_without_a_mirror_of_its_own_debootstrap_decides(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://vendor.invalid/tools stable main\n")
    assert debian_mirror(tmp_path) is None
