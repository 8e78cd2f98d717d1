"""Where an image goes to must be there: the repositories of its family, one in each region."""

from __future__ import annotations

from collections.abc import Callable

from rayfleet.console import Console
from rayfleet.fleet.model import Fleet, ImageFamily

EnsureRepositories = Callable[[Fleet, ImageFamily, Console], None]
"""Creates what is missing of a family's repositories in every region."""


def ensure_repositories(fleet: Fleet, family: ImageFamily, console: Console) -> None:
    """Create them through the Artifact Registry API.

    Raises:
        PartialFailure: some regions failed.
        RayfleetError: all did.
    """
    from rayfleet.registry.repositories import ensure_repositories

    ensure_repositories(fleet, family, console=console)
