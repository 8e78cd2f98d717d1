"""Real servers on loopback for the tests below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.registry import LocalRegistry


@pytest.fixture
def start_registry(tmp_path: Path) -> Iterator[Callable[[str], LocalRegistry]]:
    """A function that starts a registry of the given name; all end with the test."""
    started: list[LocalRegistry] = []

    def start(name: str) -> LocalRegistry:
        registry = LocalRegistry(folder=tmp_path / "registries" / name)
        started.append(registry)
        registry.start()
        return registry

    yield start
    for registry in started:
        registry.stop()
