"""Two regions with a real registry each, and the API over them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.artifact_registry import ApiServer
from tests.support.registry import LocalRegistry

REGIONS = ("us-central2", "us-east5")


@pytest.fixture
def registries(start_registry: Callable[[str], LocalRegistry]) -> Mapping[str, LocalRegistry]:
    return {region: start_registry(region) for region in REGIONS}


@pytest.fixture
def server(tmp_path: Path, registries: Mapping[str, LocalRegistry]) -> Iterator[ApiServer]:
    api = ApiServer(folder=tmp_path / "api", registries=registries)
    api.start()
    yield api
    api.end(signal.SIGKILL)
