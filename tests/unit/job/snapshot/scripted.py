"""A source whose cluster changes from look to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfleet.errors import RayfleetError
from rayfleet.job.model import JobStatus
from rayfleet.job.snapshot.source import Look
from rayfleet.job.vault.model import SavedJob


def job(name: str, *packages: str, **changes: Any) -> SavedJob:
    """A job with a working directory and modules, named without ``gcs://``."""
    env = {"py_modules": [f"gcs://{package}" for package in packages]} if packages else None
    given: dict[str, Any] = {
        "submission_id": name,
        "status": JobStatus.RUNNING,
        "started": 1_763_730_000_000,
        "entrypoint": f"python {name}.py",
        "runtime_env": env,
    }
    return SavedJob(**(given | changes))


def seen(*jobs: SavedJob, session: str = "session_1", **changes: Any) -> Look:
    """One look at these jobs."""
    return Look(session=session, ray_version="2.60.0", jobs=jobs, **changes)


@dataclass
class ScriptedSource:
    """Gives ``looks`` in turn, the last one for ever; a package is there while ``bytes`` has it."""

    looks: Sequence[Look | RayfleetError]
    bytes: dict[str, bytes] = field(default_factory=dict)
    looked: int = 0
    fetched: list[tuple[str, ...]] = field(default_factory=list)

    def look(self) -> Look:
        """The next look, or the error in its place."""
        found = self.looks[min(self.looked, len(self.looks) - 1)]
        self.looked += 1
        if isinstance(found, RayfleetError):
            raise found
        return found

    def fetch(self, uris: Sequence[str], folder: Path) -> Mapping[str, Path]:
        """Those of ``uris`` that are there."""
        self.fetched.append(tuple(uris))
        found = {}
        for number, uri in enumerate(uris):
            content = self.bytes.get(uri.removeprefix("gcs://"))
            if content is not None:
                found[uri] = folder / f"{len(self.fetched)}-{number}"
                found[uri].write_bytes(content)
        return found
