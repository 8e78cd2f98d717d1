"""What a backup reads of a cluster, and from where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rayfleet.job.model import JobStatus
from rayfleet.job.vault.model import SavedJob, Unrestorable


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
