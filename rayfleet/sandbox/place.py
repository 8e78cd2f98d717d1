"""Where one sandbox lives: its id, its files, and what it tells the rest when it is up."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rayfleet.files import ensure_folder, write_atomically

REGISTRY_USER = "rayfleet"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a sandbox, ``<state>/sandbox``, and the names that follow from it.

    Two checkouts have two state folders and so two ids; nothing of theirs is shared but the
    engine, the base image and the registry image.
    """

    folder: Path

    @property
    def id(self) -> str:
        """Six hex digits that tell this sandbox from others on the same engine."""
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:6]

    @property
    def network(self) -> str:
        """The name of the sandbox's bridge network."""
        return f"rf-{self.id}"

    @property
    def endpoints(self) -> Path:
        """What the fleet loader reads; it exists while the sandbox is up."""
        return self.folder / "endpoints.json"

    @property
    def credentials(self) -> Path:
        """Registry passwords by host, 0600."""
        return self.folder / "credentials.json"

    @property
    def htpasswd(self) -> Path:
        """The registries' own file of hashed passwords."""
        return self.folder / "registry" / "htpasswd"

    @property
    def private_key(self) -> Path:
        """The SSH key that opens the VMs, 0600."""
        return self.folder / "ssh" / "id_ed25519"

    @property
    def public_key(self) -> Path:
        """The public half of :attr:`private_key`."""
        return self.folder / "ssh" / "id_ed25519.pub"

    @property
    def secrets(self) -> Path:
        """The tokens of the clusters: a folder per secret, a 0600 file per version."""
        return self.folder / "secrets"

    @property
    def api_folder(self) -> Path:
        """Config, state, log and process id of the Artifact Registry API."""
        return self.folder / "artifact-registry"

    def storage(self, region: str) -> Path:
        """Where the registry of ``region`` keeps its blobs."""
        return self.folder / "registry" / "storage" / region


def ensure_key(place: Place) -> None:
    """Make the SSH key pair of the VMs unless it is there."""
    if place.private_key.is_file() and place.public_key.is_file():
        return
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    ensure_folder(place.private_key.parent, mode=0o700)
    write_atomically(place.private_key, private, mode=0o600)
    write_atomically(place.public_key, public + b" rayfleet-sandbox\n")


def ensure_password(place: Place) -> str:
    """The registries' password: made once, kept hashed for them and in clear (0600) for us."""
    kept = place.folder / "registry" / "password"
    if not kept.is_file():
        write_atomically(kept, secrets.token_urlsafe(24), mode=0o600)
    password = kept.read_text()
    if not place.htpasswd.is_file():
        import bcrypt

        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
        # The registry runs as this user, so nobody else needs to read it.
        write_atomically(place.htpasswd, f"{REGISTRY_USER}:{hashed}\n", mode=0o600)
    return password


def write_credentials(place: Place, hosts: list[str], password: str) -> None:
    """Write the 0600 file of registry passwords by host."""
    login = {"username": REGISTRY_USER, "password": password}
    write_atomically(
        place.credentials, json.dumps(dict.fromkeys(hosts, login), indent=2), mode=0o600
    )


def write_endpoints(place: Place, *, engine: str, ports: Mapping[str, int], api: str) -> None:
    """Tell the fleet loader where everything is: the last step of coming up."""
    value = {
        "id": place.id,
        "network": place.network,
        "engine": engine,
        "credentials": str(place.credentials),
        "private_key": str(place.private_key),
        "public_key": str(place.public_key),
        "registry_ports": dict(ports),
        "api": api,
    }
    write_atomically(place.endpoints, json.dumps(value, indent=2) + "\n")


def user_and_group() -> str:
    """``uid:gid`` of whoever runs us, for containers that write into the state folder."""
    return f"{os.getuid()}:{os.getgid()}"
