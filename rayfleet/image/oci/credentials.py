"""Which user name and password a registry gets."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import PrerequisiteMissing, Unreachable
from rayfleet.image.oci.refusals import clean

if TYPE_CHECKING:
    from rayfleet.fleet.model import Fleet

# https://cloud.google.com/artifact-registry/docs/docker/authentication#token
GOOGLE_USER = "oauth2accesstoken"
GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

# All regions ask at once, and one token opens them all.
_google_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A registry's user name and password (or token)."""

    username: str
    password: str = field(repr=False)


Login = Callable[[bool], Credentials | None]
"""Gives the credentials of one registry, None for none; safe to call from several threads.

True says that those which were given before were refused, and asks for fresh ones. Where there
are none, the same again is right.
"""


def credentials_for(host: str, fleet: Fleet) -> Credentials | None:
    """The credentials of the registry ``host`` (``name[:port]``) now; None means anonymous.

    The sandbox's own file comes first; Artifact Registry gets a token of Google's application
    default credentials; every other host what Docker's configuration has for it.

    Raises:
        PrerequisiteMissing: the credentials should be there and are not, or are unreadable.
    """
    return login_for(host, fleet)(False)


def login_for(host: str, fleet: Fleet) -> Login:
    """The credentials of :func:`credentials_for`, looked up when they are needed.

    Calling it raises what :func:`credentials_for` does. Google's token is one for all hosts.
    """
    google: list[GoogleLogin] = []

    def log_in(refused: bool) -> Credentials | None:
        if fleet.sandbox is not None:
            known = _sandbox_credentials(fleet.sandbox.credentials)
            if host in known:
                return known[host]
        if not re.fullmatch(r"[a-z0-9-]+-docker\.pkg\.dev", host):
            return _docker_credentials(host)
        if not google:
            google.append(GoogleLogin(_google_token()))
        return google[0](refused)

    return log_in


class GoogleToken:
    """The access token of Google's application default credentials, refreshed in time."""

    def __init__(self) -> None:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError

        try:
            self._credentials, _ = google.auth.default(scopes=[GOOGLE_SCOPE])
        except DefaultCredentialsError as error:
            raise _no_google_credentials(str(error)) from error
        self._lock = threading.Lock()

    def value(self, *, refused: str = "") -> str:
        """A token that is valid now, and another one than ``refused``.

        However many ask because of the same refused token, it is refreshed once.

        Raises:
            PrerequisiteMissing: Google gives none.
            Unreachable: Google does not answer.
        """
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        with self._lock:
            if not self._credentials.valid or self._credentials.token == refused:
                try:
                    self._credentials.refresh(Request())  # type: ignore[no-untyped-call]
                except TransportError as error:
                    raise Unreachable(
                        "Google's token server does not answer", why=clean(str(error))
                    ) from error
                except GoogleAuthError as error:
                    raise _no_google_credentials(str(error)) from error
            return str(self._credentials.token)


class GoogleLogin:
    """The login of one host with a token that others share."""

    def __init__(self, token: GoogleToken) -> None:
        self._token = token
        self._given = ""

    def __call__(self, refused: bool) -> Credentials:
        """The token; another one than was given before if that was ``refused``."""
        self._given = self._token.value(refused=self._given if refused else "")
        return Credentials(username=GOOGLE_USER, password=self._given)


def _google_token() -> GoogleToken:
    with _google_lock:
        return _shared_google_token()


@functools.cache
def _shared_google_token() -> GoogleToken:
    return GoogleToken()


def _no_google_credentials(why: str) -> PrerequisiteMissing:
    return PrerequisiteMissing(
        "no Google credentials for Artifact Registry",
        why=why,
        next_step="gcloud auth application-default login",
    )


def _sandbox_credentials(path: Path) -> dict[str, Credentials]:
    try:
        entries = json.loads(path.read_text())
        return {
            host: Credentials(username=entry["username"], password=entry["password"])
            for host, entry in entries.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        # Not the error's own text, which may quote the file.
        raise PrerequisiteMissing(
            f"cannot read the registry passwords in {path}",
            why=type(error).__name__,
            next_step="invoke sandbox.up",
        ) from error


def _docker_credentials(host: str) -> Credentials | None:
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        found = load_config().resolve_authconfig(host)
    except DockerException as error:
        raise PrerequisiteMissing(
            f"Docker's credential helper for {host} failed",
            why=type(error.__cause__ or error).__name__,
            next_step=f"docker login {host}",
        ) from error
    # Helpers answer with capital letters, the configuration file with small ones.
    entry = {key.lower(): str(value) for key, value in (found or {}).items()}
    if not entry.get("username") or not entry.get("password"):
        return None
    return Credentials(username=entry["username"], password=entry["password"])
