"""Every production config through the bootstrap of `ray up`, and every machine of it through Ray's
own provider: what Google would refuse is refused here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.google import Google
from tests.support.google_cluster import (
    CONFIGS,
    GoogleCluster,
    bootstrapped,
    read_config,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_production_config_is_taken_with_all_its_node_types(google: Google, path: Path) -> None:
    cluster = GoogleCluster(google=google, content=bootstrapped(google, read_config(path)))
    types = cluster.content["available_node_types"]
    for node_type in types:
        assert len(cluster.add(node_type)) == 1, node_type
    states = [*google.states("instances").values(), *google.states("nodes").values()]
    assert len(states) == len(types)
    assert set(states) <= {"RUNNING", "READY"}
    assert [seen for seen in google.seen() if seen.status >= 400 and "iam" not in seen.method] == []
