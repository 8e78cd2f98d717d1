"""Where a token is kept: a secret with numbered versions, in Google's store or in files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rayfleet.errors import PrerequisiteMissing, RayfleetError, ToolFailed, Unreachable
from rayfleet.files import ensure_private_folder, refusing, write_atomically

T = TypeVar("T")

DISABLED = ".disabled"


class Secret(Protocol):
    """A secret and its versions, which have numbers. Every method may raise RayfleetError."""

    @property
    def name(self) -> str:
        """What it is called."""

    def enabled(self) -> tuple[str, ...]:
        """The versions that can be read, the newest first; none if there is no such secret."""

    def read(self, version: str) -> str:
        """What a version says."""

    def add(self, value: str) -> str:
        """A new version, and the secret itself where there is none; returns its number."""

    def disable(self, version: str) -> None:
        """Let nobody read a version any more."""


@dataclass(frozen=True, slots=True)
class FileSecret:
    """A secret of the sandbox: a 0600 file per version in ``folder``, which has its name."""

    folder: Path

    @property
    def name(self) -> str:
        """The name of the secret."""
        return self.folder.name

    def enabled(self) -> tuple[str, ...]:
        """See :class:`Secret`."""
        return tuple(str(number) for number in sorted(self._numbers(), reverse=True))

    def read(self, version: str) -> str:
        """See :class:`Secret`."""
        path = self.folder / version
        with refusing(path, action="read"):
            return path.read_text().strip()

    def add(self, value: str) -> str:
        """See :class:`Secret`."""
        ensure_private_folder(self.folder.parent)
        ensure_private_folder(self.folder)
        number = max([0, *self._numbers(), *self._numbers(DISABLED)]) + 1
        write_atomically(self.folder / str(number), value, mode=0o600)
        return str(number)

    def disable(self, version: str) -> None:
        """See :class:`Secret`."""
        path = self.folder / version
        with refusing(path):
            path.rename(path.with_name(version + DISABLED))

    def _numbers(self, ending: str = "") -> list[int]:
        names = (path.name for path in self.folder.glob(f"*{ending}"))
        numbers = (name.removesuffix(ending) for name in names if name.endswith(ending))
        return [int(number) for number in numbers if number.isdecimal()]


@dataclass(frozen=True, slots=True)
class GoogleSecret:
    """A secret in Google's Secret Manager."""

    project: str
    name: str

    def enabled(self) -> tuple[str, ...]:
        """See :class:`Secret`."""

        from rayfleet.google_api import pages

        def ask() -> Any:
            versions = self._secrets().versions()
            asked = {"parent": self._path, "filter": "state:ENABLED"}
            return pages(versions, "versions", asked)

        found = self._patiently(ask, "list the versions of", "viewer", missing=[])
        names = [row["name"].rpartition("/")[2] for row in found]
        return tuple(sorted(names, key=int, reverse=True))

    def read(self, version: str) -> str:
        """See :class:`Secret`."""

        def ask() -> Any:
            name = f"{self._path}/versions/{version}"
            return self._secrets().versions().access(name=name).execute()

        answer = self._patiently(ask, f"read version {version} of", "secretAccessor")
        return base64.b64decode(answer["payload"]["data"]).decode().strip()

    def add(self, value: str) -> str:
        """See :class:`Secret`."""
        self._patiently(self._create, "make", "admin")
        data = base64.b64encode(value.encode()).decode()

        def ask() -> Any:
            body = {"payload": {"data": data}}
            return self._secrets().addVersion(parent=self._path, body=body).execute()

        # Once: sent twice it would be two versions.
        answer = self._asked(ask, "add a version to", "secretVersionAdder")
        return str(answer["name"]).rpartition("/")[2]

    def disable(self, version: str) -> None:
        """See :class:`Secret`."""

        def ask() -> Any:
            name = f"{self._path}/versions/{version}"
            return self._secrets().versions().disable(name=name, body={}).execute()

        self._patiently(ask, f"disable version {version} of", "secretVersionManager")

    @property
    def _path(self) -> str:
        return f"projects/{self.project}/secrets/{self.name}"

    def _secrets(self) -> Any:
        from rayfleet.google_api import service

        return service("secretmanager", "v1").projects().secrets()

    def _create(self) -> Any:
        from rayfleet.google_api import status_of

        body: dict[str, Any] = {"replication": {"automatic": {}}}
        try:
            return (
                self._secrets()
                .create(parent=f"projects/{self.project}", secretId=self.name, body=body)
                .execute()
            )
        except Exception as error:
            if status_of(error) == 409:
                return {}  # it is there
            raise

    def _patiently(
        self, ask: Callable[[], Any], doing: str, role: str, *, missing: Any = None
    ) -> Any:
        from rayfleet.google_api import patiently

        return self._asked(lambda: patiently(ask), doing, role, missing=missing)

    def _asked(self, ask: Callable[[], Any], doing: str, role: str, *, missing: Any = None) -> Any:
        from rayfleet.google_api import status_of

        try:
            return ask()
        except RayfleetError:
            raise
        except Exception as error:
            if missing is not None and status_of(error) == 404:
                return missing
            raise self._refused(error, doing, role) from error

    def _refused(self, error: Exception, doing: str, role: str) -> RayfleetError:
        from rayfleet.google_api import said, status_of

        what = f"cannot {doing} the secret {self.name}"
        if type(error).__name__ == "DefaultCredentialsError":
            login = "gcloud auth application-default login"
            return PrerequisiteMissing(what, why="no Google credentials here", next_step=login)
        status = status_of(error)
        if status in {0, 429} or status >= 500:
            return Unreachable(what, why=said(error))
        grant = (
            f"gcloud secrets add-iam-policy-binding {self.name} --project={self.project} "
            f"--member=user:EMAIL --role=roles/secretmanager.{role}"
        )
        return ToolFailed(what, why=said(error), next_step=grant if status == 403 else "")
