"""What a fleet on Google Cloud needs on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rayfleet.doctor.report import Check, missing, ok
from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.model import Fleet

# What ray/autoscaler/_private/gcp/config.py imports and `ray[default]` does not bring.
RAY_NEEDS = ("googleapiclient", "google_auth_httplib2")
PRIVATE_MODE = 0o077


def google_checks(fleet: Fleet) -> Mapping[str, Callable[[], Check]]:
    """The checks for clusters on Google Cloud, by name."""
    keys = {cluster.ssh.private_key: cluster.ssh for cluster in fleet.clusters.values()}
    return {
        "google credentials": credentials_check,
        "ray's google client": client_check,
        **{
            f"ssh key {path}": partial(key_check, path, ssh.public_key)
            for path, ssh in sorted(keys.items())
            if path
        },
    }


def credentials_check() -> Check:
    """Google's application default credentials are found (they are not tried)."""
    from rayfleet.image.oci.credentials import GoogleToken

    try:
        GoogleToken()
    except PrerequisiteMissing as error:
        return missing("google credentials", error.why, "gcloud auth application-default login")
    return ok("google credentials", "application default credentials")


def client_check(modules: tuple[str, ...] = RAY_NEEDS) -> Check:
    """The library that Ray's own provider for Google Cloud imports is installed."""
    lacking = [module for module in modules if find_spec(module) is None]
    if lacking:
        found = f"no module {', '.join(lacking)}"
        return missing("ray's google client", found, "make setup")
    return ok("ray's google client", "installed")


def key_check(private: str, public: str) -> Check:
    """The SSH key pair of the heads is there, and nobody else can read the private half."""
    name, path = f"ssh key {private}", Path(private).expanduser()
    if not path.is_file():
        return missing(name, "no such file", f"ssh-keygen -t ed25519 -f {private}")
    mode = path.stat().st_mode & 0o777
    if mode & PRIVATE_MODE:
        return missing(name, f"mode {mode:04o}: ssh refuses it", f"chmod 600 {private}")
    if public and not Path(public).expanduser().is_file():
        return missing(name, f"no {public}", f"ssh-keygen -y -f {private} > {public}")
    return ok(name, f"mode {mode:04o}")
