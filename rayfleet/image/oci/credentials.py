"""Which user name and password a registry gets."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import PrerequisiteMissing, Unreachable
from rayfleet.image.oci.docker_config import HUB_HOSTS, config_file, docker_login
from rayfleet.image.oci.docker_hub import hub_login
from rayfleet.image.oci.refusals import clean
from rayfleet.image.oci.rights import GOOGLE_HOST

if TYPE_CHECKING:
    from rayfleet.fleet.model import Fleet

# https://cloud.google.com/artifact-registry/docs/docker/authentication#token
GOOGLE_USER = "oauth2accesstoken"
GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

# All regions ask at once, and one token opens them all.
_google_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A registry's user name and password (or token).

    ``account`` is whose they are where the user name does not tell: an e-mail address, or "".
    """

    username: str
    password: str = field(repr=False)
    account: str = ""


class Kind(StrEnum):
    """Where a registry's login comes from."""

    SANDBOX = "the sandbox's own file"
    GOOGLE = "Google's default credentials"
    ENVIRONMENT = "environment"
    HELPER = "Docker's credential helper"
    PLAIN = "Docker's configuration, in plain text"
    NOBODY = "nobody: anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How the push logs in to a registry; ``place`` is a file, a helper or an account.

    ``remark`` is what is wrong with the place, or "".
    """

    kind: Kind
    place: str = ""
    remark: str = ""

    def __str__(self) -> str:
        if self.kind is Kind.ENVIRONMENT:
            return self.place
        return f"{self.kind} ({self.place})" if self.place else str(self.kind)


Login = Callable[[bool], Credentials | None]
"""Gives the credentials of one registry, None for none; safe to call from several threads.

True says that those which were given before were refused, and asks for fresh ones. Where there
are none, the same again is right.
"""


def credentials_for(host: str, fleet: Fleet) -> Credentials | None:
    """The credentials of the registry ``host`` (``name[:port]``) now; None means anonymous.

    The sandbox's own file comes first; Artifact Registry gets a token of Google's application
    default credentials; Docker Hub what the environment or ``.env`` has for it; every other
    host, and those where there is no such thing, what Docker's configuration has for it.

    Raises:
        PrerequisiteMissing: the credentials should be there and are not, or are unreadable.
    """
    return login_for(host, fleet)(False)


def source_for(host: str, fleet: Fleet) -> Source:
    """Where :func:`credentials_for` finds the credentials of ``host``.

    Raises:
        PrerequisiteMissing: as :func:`credentials_for`.
    """
    return _find(host, fleet)[0]


def login_for(host: str, fleet: Fleet) -> Login:
    """The credentials of :func:`credentials_for`, looked up when they are needed.

    Calling it raises what :func:`credentials_for` does. Google's token is one for all hosts.
    """
    google: list[GoogleLogin] = []

    def log_in(refused: bool) -> Credentials | None:
        source, credentials = _find(host, fleet)
        if source.kind is not Kind.GOOGLE:
            return credentials
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

    @property
    def account(self) -> str:
        """Whose it is, an e-mail address; "" where the credentials do not tell."""
        names = ("service_account_email", "signer_email", "account")
        found = (str(getattr(self._credentials, name, None) or "") for name in names)
        return next((each for each in found if "@" in each), "")

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
        return Credentials(username=GOOGLE_USER, password=self._given, account=self._token.account)


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


def _find(host: str, fleet: Fleet) -> tuple[Source, Credentials | None]:
    """Where a login is and what it is; without a token, which has to be asked for."""
    if fleet.sandbox is not None:
        known = _sandbox_credentials(fleet.sandbox.credentials)
        if host in known:
            return Source(kind=Kind.SANDBOX), known[host]
    if GOOGLE_HOST.fullmatch(host):
        try:
            return Source(kind=Kind.GOOGLE, place=_google_token().account), None
        except PrerequisiteMissing:
            # Who has only run `gcloud auth configure-docker` has a login all the same.
            source, credentials = _find_in_docker(host)
            if credentials is None:
                raise
            return source, credentials
    if host in HUB_HOSTS and (hub := hub_login(fleet.source)) is not None:
        source = Source(kind=Kind.ENVIRONMENT, place=hub.where, remark=hub.remark)
        return source, Credentials(username=hub.username, password=hub.password)
    return _find_in_docker(host)


def _find_in_docker(host: str) -> tuple[Source, Credentials | None]:
    known = docker_login(host)
    if known is None:
        return Source(kind=Kind.NOBODY), None
    source = (
        Source(kind=Kind.HELPER, place=f"docker-credential-{known.helper}")
        if known.helper
        else Source(kind=Kind.PLAIN, place=str(config_file()))
    )
    return source, Credentials(username=known.username, password=known.password)
