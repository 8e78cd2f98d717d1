"""A service account that the emulator knows, and the environment that leads clients to it."""

from __future__ import annotations

import json
from pathlib import Path

from rayfleet.files import write_atomically

# The names that gcloud has for the addresses of the APIs.
# https://cloud.google.com/sdk/gcloud/reference/config/set#api_endpoint_overrides
OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
ENDPOINTS = {
    "COMPUTE": "/compute/v1/",
    "TPU": "/",
    "CLOUDRESOURCEMANAGER": "/",
    "IAM": "/",
    "SECRETMANAGER": "/",
    "STORAGE": "/storage/v1/",
}


def environment(url: str, project: str, account: Path) -> dict[str, str]:
    """What a process needs to take the emulator at ``url`` for Google Cloud: default credentials
    from the file ``account``, the project, and gcloud's variables for the addresses."""
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
        "GOOGLE_CLOUD_PROJECT": project,
        "CLOUDSDK_CORE_PROJECT": project,
        **{f"{OVERRIDE}{api}": f"{url}{path}" for api, path in ENDPOINTS.items()},
    }


def write_account(path: Path, url: str, project: str) -> None:
    """Write a service account's key file to ``path`` whose tokens the emulator at ``url`` gives.

    The key is made once per file and worth nothing anywhere else.
    """
    key = json.loads(path.read_text())["private_key"] if path.is_file() else _private_key()
    account = {
        "type": "service_account",
        "project_id": project,
        "private_key_id": "1",
        "private_key": key,
        "client_email": f"operator@{project}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{url}/token",
    }
    write_atomically(path, json.dumps(account, indent=2), mode=0o600)


def _private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
