"""Ray's authentication token, on the operator's side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Auth, AuthMode


def auth_token(auth: Auth, environ: Mapping[str, str]) -> str | None:
    """The token for a cluster, looked for where Ray looks: None if it wants none or none is here.

    That is RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, then ~/.ray/auth_token.

    Raises:
        UsageError: the file that RAY_AUTH_TOKEN_PATH names cannot be read.
    """
    if auth.mode is AuthMode.DISABLED:
        return None
    if token := environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = environ.get("RAY_AUTH_TOKEN_PATH", "")
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text().strip() or None
    except OSError as error:
        if not named:
            return None
        raise UsageError(f"cannot read RAY_AUTH_TOKEN_PATH {path}", why=str(error)) from error
