"""The packages of the jobs of a backup: on the head, proved and kept, before any job is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from rayfleet.errors import RayfleetError, Unreachable
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.package import Package
from rayfleet.job.restore.decide import Settled
from rayfleet.job.restore.report import Outcome
from rayfleet.job.vault.model import PACKAGE_SCHEME, Backup, SavedPackage
from rayfleet.waiting import Clock

FRESH_SECONDS = 300.0
"""How long an answer that a package is there is relied on.

Half of the 600 s for which Ray 2.60 keeps a package that was asked for
(RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S).
"""


class Shelf(Protocol):
    """Where the bytes of saved packages are."""

    def package(self, sha256: str) -> Path:
        """The file of those bytes, verified."""


class PackageHost(Protocol):
    """A head, as far as packages go."""

    def upload(self, package: Package) -> bool:
        """Bring ``package`` to the head; False if it was there."""

    def has_package(self, name: str) -> bool:
        """True when the head holds it; asking keeps it there for a while."""


class Packages:
    """Brings the packages of ``backup`` to ``host``; one that will not go does not stop others.

    Ray 2.60 refuses a runtime environment for ten minutes after it once missed a package, so
    that no job may be submitted before its packages are proved to be there.
    """

    def __init__(
        self,
        host: PackageHost,
        shelf: Shelf,
        backup: Backup,
        *,
        narrate: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._host = host
        self._shelf = shelf
        self._saved = {package.uri: package for package in backup.packages}
        self._narrate = narrate
        self._clock = clock
        self._proved: dict[str, float] = {}
        self._problems: dict[str, Settled] = {}

    def bring(self, uris: Iterable[str]) -> None:
        """Put those of ``uris`` that the head lacks, then ask it for every one.

        Raises:
            Unreachable: the head stopped answering.
        """
        wanted = tuple(dict.fromkeys(uris))
        for uri in wanted:
            self._try(uri, self._put)
        for uri in wanted:
            if uri not in self._problems:
                self._try(uri, self._prove)
        self._narrate("packages proved")

    def renew(self, uris: Iterable[str]) -> None:
        """Ask again for those of ``uris`` that the head may collect soon, and put lost ones."""
        for uri in uris:
            if self._clock.monotonic() - self._proved.get(uri, 0.0) >= FRESH_SECONDS:
                self._try(uri, self._prove)

    def problem(self, uris: Iterable[str]) -> Settled | None:
        """Why a job with ``uris`` cannot be submitted; None when it can."""
        found = [self._problems[uri] for uri in uris if uri in self._problems]
        return found[0] if found else None

    def _put(self, uri: str) -> None:
        saved = self._saved.get(uri)
        if saved is None:
            # Somebody may have submitted another job with the same package meanwhile.
            if not self._host.has_package(uri.removeprefix(PACKAGE_SCHEME)):
                self._refuse(uri, Outcome.NOT_RESTORABLE, f"the bytes of {uri} were not saved")
            return
        fresh = self._upload(saved)
        self._narrate(f"package {uri} put" if fresh else f"package {uri} was there")

    def _prove(self, uri: str) -> None:
        if not self._host.has_package(uri.removeprefix(PACKAGE_SCHEME)):
            saved = self._saved.get(uri)
            if saved is None:
                self._refuse(uri, Outcome.NOT_RESTORABLE, f"the bytes of {uri} were not saved")
                return
            self._upload(saved)
        self._proved[uri] = self._clock.monotonic()

    def _upload(self, saved: SavedPackage) -> bool:
        path = self._shelf.package(saved.sha256)
        package = Package(name=saved.name, path=path, size=saved.size, files=0)
        try:
            return self._host.upload(package)
        except Unreachable:
            # A package that the head chokes on differs from a head that is gone: that one
            # does not answer this either.
            if self._host.has_package(saved.name):
                return True
            raise _TooMuch(f"the head did not take {saved.uri} in time") from None

    def _try(self, uri: str, step: Callable[[str], None]) -> None:
        try:
            step(uri)
        except (Unreachable, Unauthorized):
            raise
        except RayfleetError as error:
            why = f": {error.why}" if error.why else ""
            self._refuse(uri, Outcome.FAILED, f"{error.what}{why}")

    def _refuse(self, uri: str, outcome: Outcome, reason: str) -> None:
        self._problems[uri] = Settled(outcome=outcome, reason=reason)
        self._narrate(f"package {uri} missing: {reason}")


class _TooMuch(RayfleetError):
    """A package that the head does not take, while it answers otherwise."""


def bring_packages(
    host: PackageHost,
    shelf: Shelf,
    backup: Backup,
    uris: Iterable[str],
    *,
    narrate: Callable[[str], None],
    clock: Clock,
) -> tuple[str, ...]:
    """Bring those of ``uris`` to ``host`` before any job is; returns the problems, a line each.

    Raises:
        Unreachable: the head stopped answering.
    """
    wanted = tuple(dict.fromkeys(uris))
    packages = Packages(host, shelf, backup, narrate=narrate, clock=clock)
    packages.bring(wanted)
    found = ((uri, packages.problem([uri])) for uri in wanted)
    return tuple(f"{uri}: {problem.reason}" for uri, problem in found if problem)
