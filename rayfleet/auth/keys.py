"""The key pair that opens the heads, from Secret Manager to where the fleet file wants it."""

from __future__ import annotations

from pathlib import Path

from rayfleet.console import Console
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.files import ensure_folder, refusing, write_atomically
from rayfleet.fleet.model import Fleet, Provider
from rayfleet.secret.store import GoogleSecret

PRIVATE, PUBLIC = "RAY_CLUSTER_PRIVATE_KEY", "RAY_CLUSTER_PUBLIC_KEY"


def fetch_keys(fleet: Fleet, console: Console, *, dry_run: bool = False) -> None:
    """Write the keys, 0600, where they are not; another key there is never replaced.

    A dry run compares, and says which would be written.

    Raises:
        UsageError: there is another key.
        ToolFailed: the secrets have no version.
        RayfleetError: they cannot be read.
    """
    places: dict[Path, str] = {}
    for cluster in fleet.clusters.values():
        if cluster.provider is Provider.GCP:
            wanted = {PRIVATE: cluster.ssh.private_key, PUBLIC: cluster.ssh.public_key}
            places |= {Path(text).expanduser(): name for name, text in wanted.items() if text}
    for path, name in places.items():
        secret = GoogleSecret(fleet.project, name)
        version = next(iter(secret.enabled()), "")
        if not version:
            raise ToolFailed(f"the secret {name} has no version")
        key = secret.read(version) + "\n"
        if not path.exists() and dry_run:
            console.data(f"would write {path}: {name}, version {version}")
            continue
        if not path.exists():
            # A folder that is there may be anybody's: only one that is made here is closed.
            ensure_folder(path.parent, mode=0o700)
            write_atomically(path, key, mode=0o600)
            console.say(f"wrote {path}")
            continue
        with refusing(path, action="read"):
            same = path.read_text().strip() == key.strip()
            if same and not dry_run:
                path.chmod(0o600)
        if not same:
            raise UsageError(
                f"{path} is another key than {name}", next_step=f"mv {path} {path}.old"
            )
        console.say(f"{path} is there")
    if not places:
        console.say("no key to fetch: the sandbox makes its own")
