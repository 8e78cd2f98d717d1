"""Google's token server on loopback, and a service account that it knows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.scripted_http import Answer, Asked, scripted_server


@dataclass(kw_only=True)
class TokenServer:
    """``given`` counts tokens; they are token-1, token-2 and so on, good for ``lifetime``
    seconds. ``status`` other than 200 refuses them."""

    account: Path
    given: int = 0
    lifetime: int = 3600
    status: int = 200
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def token(self) -> str:
        """The one that was given last."""
        return f"token-{self.given}"

    def give(self, asked: Asked) -> Answer:
        """A new token."""
        if self.status != 200:
            return Answer(status=self.status, body=b'{"error":"invalid_grant"}')
        with self._lock:
            self.given += 1
            value = {"access_token": self.token, "expires_in": self.lifetime}
        headers = {"Content-Type": "application/json"}
        return Answer(body=json.dumps(value).encode(), headers=headers)


@contextmanager
def google_tokens(folder: Path) -> Iterator[TokenServer]:
    """Run the server for the block; ``account`` is a file for GOOGLE_APPLICATION_CREDENTIALS."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    state = TokenServer(account=folder / "account.json")
    with scripted_server() as server:
        server.respond = state.give
        account = {
            "type": "service_account",
            "client_email": "me@example.test",
            "token_uri": f"http://{server.host}/token",
            "private_key": text,
        }
        state.account.write_text(json.dumps(account))
        state.account.chmod(0o600)
        yield state
