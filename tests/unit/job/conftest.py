"""Retries without pauses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stamina


@pytest.fixture(autouse=True)
def no_backoff() -> Iterator[None]:
    """At most three attempts, and none of them waits."""
    with stamina.set_testing(True, attempts=3, cap=True):
        yield
