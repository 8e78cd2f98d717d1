"""A cloud of which every cluster has one machine: what Ray's ``external`` provider asks."""

from __future__ import annotations

from ray.autoscaler.node_provider import NodeProvider


class Loopback(NodeProvider):
    """Says that the head is there; the provider section of the config says where."""

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """The head."""
        return [] if "worker" in tag_filters.values() else ["head"]

    def node_tags(self, node_id: str) -> dict[str, str]:
        """Those of a head."""
        del node_id
        return {"ray-node-type": "head"}

    def external_ip(self, node_id: str) -> str:
        """Its address."""
        del node_id
        return str(self.provider_config["address"])
