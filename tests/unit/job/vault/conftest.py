"""A vault in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.job.vault.store import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """An empty vault, which is not on disk yet."""
    return Vault(tmp_path / "state" / "vault")
