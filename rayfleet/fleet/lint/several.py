"""What is wrong with several configs together, each of which is right for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rayfleet.fleet.document import Trail
from rayfleet.fleet.lint.config import Config
from rayfleet.fleet.lint.finding import Finding

# Where a cloud looks for the machines of a cluster of this name.
_ACCOUNTS: dict[str, tuple[str, ...]] = {
    "aliyun": ("region",),
    "aws": ("region",),
    "azure": ("subscription_id", "resource_group"),
    "gcp": ("project_id", "availability_zone"),
    "vsphere": (),
}

Mark = tuple[Trail, tuple[str, ...]]
"""A place in a config, and what must not be the same in another one."""


def check_together(configs: Sequence[Config]) -> Iterator[Finding]:
    """Every pair that would get in each other's way, told at the later one."""
    rules: tuple[tuple[str, Callable[[Config], Iterable[Mark]], str], ...] = (
        (
            "cluster-name-shared",
            _identity,
            "has the same name in the same place, so ray up of one replaces the other's head;"
            " write another name",
        ),
        (
            "resource-group-shared",
            _resource_group,
            "is in the same resource group, so ray down of one takes the network of the other;"
            " write a group of its own",
        ),
        (
            "host-shared",
            _hosts,
            "has the same machine, where starting one ends the Ray of the other; write another",
        ),
    )
    for rule, marks, text in rules:
        first: dict[tuple[str, ...], Config] = {}
        for config in configs:
            for place, mark in marks(config):
                other = first.setdefault(mark, config)
                if other is not config:
                    yield config.warning(rule, place, f"{other.document.shown} {text}")


def _identity(config: Config) -> Iterator[Mark]:
    keys = _ACCOUNTS.get(config.provider)
    name = config.document.value.get("cluster_name", config.defaults.get("cluster_name"))
    if keys is not None and isinstance(name, str):
        account = [str(config.get("provider", key)) for key in keys]
        yield ("cluster_name",), (config.provider, name, *account)


def _resource_group(config: Config) -> Iterator[Mark]:
    group = config.string("provider", "resource_group")
    if config.provider == "azure" and group:
        account = str(config.get("provider", "subscription_id"))
        yield ("provider", "resource_group"), (group, account)


def _hosts(config: Config) -> Iterator[Mark]:
    if config.provider != "local":
        return
    places: list[Trail] = [("provider", "head_ip")]
    addresses = config.items("provider", "worker_ips")
    places += [("provider", "worker_ips", index) for index in range(len(addresses))]
    seen: set[str] = set()
    for place in places:
        address = config.string(*place)
        if address and address not in seen:
            seen.add(address)
            yield place, (address,)
