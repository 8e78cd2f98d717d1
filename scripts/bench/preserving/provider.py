"""A cloud with one machine: what Ray's ``external`` provider asks about the head."""

from __future__ import annotations

from ray.autoscaler.node_provider import NodeProvider


class OneHead(NodeProvider):
    """Says that the head is there, and where."""

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """The head."""
        del tag_filters  # nobody asks for a worker
        return ["head"]

    def external_ip(self, node_id: str) -> str:
        """Its address; the proxy command of the fleet file leads there."""
        del node_id
        return "127.0.0.1"
