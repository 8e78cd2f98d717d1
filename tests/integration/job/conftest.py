"""One Ray head for all tests of this folder: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayfleet.job.client import JobClient
from tests.support.ray_head import LocalRayHead


@pytest.fixture(scope="package")
def ray_head() -> Iterator[LocalRayHead]:
    """A Ray head without authentication."""
    with LocalRayHead() as head:
        yield head


@pytest.fixture
def jobs(ray_head: LocalRayHead) -> JobClient:
    """A client of the head's jobs."""
    return ray_head.jobs()
