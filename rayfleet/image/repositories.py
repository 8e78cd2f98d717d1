"""Where an image goes to must be there, and must keep it: the repositories of its family, one in
each region."""

from __future__ import annotations

from collections.abc import Callable

from rayfleet.console import Console
from rayfleet.fleet.model import Fleet, ImageFamily, Pin

EnsureRepositories = Callable[[Fleet, ImageFamily, Console], None]
"""Creates what is missing of a family's repositories in every region."""

ProtectPin = Callable[[Fleet, str, Pin, Console], None]
"""Sees that no cleanup policy takes what LATEST of a family is about to name."""


def ensure_repositories(fleet: Fleet, family: ImageFamily, console: Console) -> None:
    """Create them through the Artifact Registry API.

    Raises:
        PartialFailure: some regions failed.
        RayfleetError: all did.
    """
    from rayfleet.registry.repositories import ensure_repositories

    ensure_repositories(fleet, family, console=console)


def protect_pin(fleet: Fleet, family: str, pin: Pin, console: Console) -> None:
    """Add the KEEP rules that ``pin``, an image just built, needs through the Artifact Registry
    API; say where that failed.

    Raises:
        PartialFailure: policies of some regions delete the image, and could not be changed.
        RayfleetError: those of all do.
    """
    from rayfleet.registry.protect import protect_pin

    protect_pin(fleet, family, pin, console=console)


def require_protection(fleet: Fleet, family: str, pin: Pin, console: Console) -> None:
    """Add the KEEP rules that ``pin``, which may be an old image, needs.

    Raises:
        PartialFailure: in some regions they could not be set.
        RayfleetError: nor in any.
    """
    from rayfleet.registry.protect import protect_pin

    protect_pin(fleet, family, pin, console=console, strict=True)
