"""A cloud of one file: Ray's provider interface over a list of nodes that a test writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ray.autoscaler.node_provider import NodeProvider

MODULE = f"{__name__}.FileNodeProvider"


class FileNodeProvider(NodeProvider):  # type: ignore[misc]
    """``provider_config["file"]`` maps clusters to ``{node: {"head": bool, "digest": str}}``.

    A cluster that is not in it cannot be asked for.
    """

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """The nodes of that type."""
        kind = tag_filters.get("ray-node-type", "")
        return [
            name
            for name, node in self._nodes().items()
            if kind in {"", "head" if node["head"] else "worker"}
        ]

    def nodes_for_teardown(self, tag_filters: dict[str, str]) -> list[str]:
        """All of them."""
        return self.non_terminated_nodes(tag_filters)

    def external_ip(self, node_id: str) -> str:
        """Whatever: the test's way in does not look at it."""
        return "127.0.0.1"

    def image_digest(self, node_id: str) -> str:
        """What the test says; on Google's cloud nothing."""
        return str(self._nodes()[node_id]["digest"])

    def _nodes(self) -> dict[str, Any]:
        clusters = json.loads(Path(self.provider_config["file"]).read_text())
        if self.cluster_name not in clusters:
            # An error that may pass would be asked for again, for a quarter of a minute.
            raise RuntimeError("the cloud does not answer")
        nodes: dict[str, Any] = clusters[self.cluster_name]
        return nodes
