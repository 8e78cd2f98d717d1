"""Bring the cloud to the time that it is."""

from __future__ import annotations

from rayfleet.emulator import queued
from rayfleet.emulator.cloud import Cloud


def settle(cloud: Cloud) -> bool:
    """Let everything become what it is by now; whether anything changed."""
    changed = bool(list(cloud.state.settle(cloud.now())))
    return queued.settle(cloud) or changed
