"""An emulated Google Cloud for every test of this folder, and a cluster in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.project import Project
from tests.support.google import Google, google, google_server
from tests.support.google_cluster import GoogleCluster, google_cluster

__all__ = ["google", "google_server"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path, fleet_file=tmp_path / "fleet.yaml", state=tmp_path / "state")


@pytest.fixture
def cluster(google: Google) -> GoogleCluster:
    """One of the production fleet, with its head and two slices."""
    made = google_cluster(google)
    made.add("head_default")
    made.add("tpu_worker", 2)
    return made
