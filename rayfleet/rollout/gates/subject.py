"""The cluster that gates ask: what is wanted of it, and one connection to its head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayfleet.cluster.config import LaunchConfig
    from rayfleet.cluster.head import Head
    from rayfleet.fleet.model import Cluster
    from rayfleet.job.client import JobClient
    from rayfleet.job.dashboard import Dashboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a cluster must be.

    ``before`` counts the workers by type that it had before it was stopped. ``emptied`` is
    when nothing of it was left, in seconds since 1970; None when it did not run.
    """

    rollout: str
    cluster: Cluster
    config: LaunchConfig
    before: Mapping[str, int] = field(default_factory=dict)
    emptied: float | None = None


class Subject:
    """A cluster under test: use as a context manager, which closes the connection.

    ``connect`` opens a head. What one round of questions has read is kept until ``refresh``.
    """

    def __init__(
        self,
        wanted: Wanted,
        connect: Callable[[], Head],
        *,
        token: str | None,
        image_digest: Callable[[], str],
    ) -> None:
        self.wanted = wanted

    def head(self) -> Head:
        """The connection, opened or opened again when it was lost."""
        raise NotImplementedError

    def dashboard(self) -> Dashboard:
        """The head's HTTP API with the cluster's token; nothing is tried twice."""
        raise NotImplementedError

    def jobs(self) -> JobClient:
        """The head's jobs; nothing is tried twice."""
        raise NotImplementedError
