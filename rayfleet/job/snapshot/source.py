"""What a backup reads of a cluster, and from where."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rayfleet.errors import ToolFailed
from rayfleet.job.model import JobStatus
from rayfleet.job.snapshot.channel import LIMIT_SECONDS, Answer, asked
from rayfleet.job.vault.model import SavedJob, Unrestorable

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head

DASHBOARD_PORT = 8265
_URIS_PER_RUN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at everything that runs on a cluster.

    ``session`` is Ray's session name, another for every start of a head. ``jobs`` have not
    ended and are in the order of their start; ``ended`` maps the others to their status.
    """

    session: str
    ray_version: str
    jobs: tuple[SavedJob, ...] = ()
    ended: Mapping[str, JobStatus] = field(default_factory=dict)
    unrestorable: tuple[Unrestorable, ...] = ()


class Source(Protocol):
    """Where a backup looks."""

    def look(self) -> Look:
        """What the cluster has now.

        Raises:
            Unreachable: nobody answers; never to be taken for "no jobs".
            ToolFailed: the answer cannot be read.
        """

    def fetch(self, uris: Sequence[str], folder: Path) -> Mapping[str, Path]:
        """Put the bytes behind each of ``uris`` into a file of ``folder``, checked.

        A URI that the cluster does not have any more is absent in the answer.

        Raises:
            Unreachable: the connection was lost, or nobody answers.
            ToolFailed: the bytes that came are not the bytes that were sent.
        """


class HeadSource:
    """A cluster through its head: Ray's own store is read there, the dashboard is not needed.

    ``dashboard_port`` tells which head is meant where a machine has several; ``limit`` is how many
    seconds the head has for a look, and for each package. A package comes
    out of that store or not at all: what the head has unpacked of it is the folder that the job
    works in, so that nobody can tell whether it is still what was submitted.
    """

    def __init__(
        self, head: Head, *, dashboard_port: int = DASHBOARD_PORT, limit: int = LIMIT_SECONDS
    ) -> None:
        self._head = head
        self._port = dashboard_port
        self._limit = limit

    def look(self) -> Look:
        """What the cluster has now; see :class:`Source`."""
        from rayfleet.job.snapshot.parse import parse_look

        documents = []
        with self._asked("look") as answer:
            for frame in answer.frames():
                document = io.BytesIO()
                answer.copy(frame, document)
                documents.append(document.getvalue())
        if len(documents) != 1:
            raise ToolFailed(f"{self._head.address.cluster}: the head gave no account of its jobs")
        return parse_look(documents[0])

    def fetch(self, uris: Sequence[str], folder: Path) -> Mapping[str, Path]:
        """Bring the bytes behind ``uris`` here; see :class:`Source`."""
        distinct = tuple(dict.fromkeys(uris))
        found: dict[str, Path] = {}
        for start in range(0, len(distinct), _URIS_PER_RUN):
            some = distinct[start : start + _URIS_PER_RUN]
            found |= self._fetch(some, folder, start)
        return found

    def _fetch(self, uris: Sequence[str], folder: Path, number: int) -> dict[str, Path]:
        left = list(uris)
        found = {}
        with self._asked("fetch", *uris) as answer:
            for frame in answer.frames():
                uri = str(frame.fields.get("uri"))
                if uri not in left:
                    raise answer.nonsense()
                left.remove(uri)
                if frame.kind == "package":
                    found[uri] = folder / f"package-{number + len(uris) - len(left):05}"
                    found[uri].touch(mode=0o600, exist_ok=False)
                    with found[uri].open("wb") as target:
                        answer.copy(frame, target)
        if left:
            raise ToolFailed(f"{self._head.address.cluster}: the head did not answer for {left[0]}")
        return found

    def _asked(self, *what: str) -> AbstractContextManager[Answer]:
        return asked(self._head, what, port=self._port, limit=self._limit)
