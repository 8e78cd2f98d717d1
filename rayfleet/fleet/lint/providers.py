"""What each provider of Ray reads below ``provider``, and what it cannot do without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address

from rayfleet.fleet.document import Trail, Value
from rayfleet.fleet.lint.config import TYPES, Config
from rayfleet.fleet.lint.finding import Finding, printable
from rayfleet.fleet.lint.ray_files import PROVIDERS, ray_defaults

# Read by Ray 2.60 for every provider, or for all that have machines.
COMMON = frozenset(
    ("type", "disable_launch_config_check", "disable_node_updaters", "foreground_node_launch")
) | frozenset(("use_external_head_ip", "use_internal_ips", "use_node_id_as_ip"))
_KNOWN: Mapping[str, str] = {
    "aws": "region availability_zone cache_stopped_nodes aws_credentials key_pair security_group"
    " cloudwatch",
    "gcp": "region availability_zone project_id cache_stopped_nodes gcp_credentials",
    "azure": "location resource_group subscription_id tags unique_id subnet_mask msi_name"
    " msi_resource_group availability_zone cache_stopped_nodes",
    "local": "head_ip worker_ips external_head_ip coordinator_address",
    "vsphere": "vsphere_config",
    "aliyun": "region zone_id cidr_block cache_stopped_nodes access_key access_key_secret key_name"
    " security_group_rule security_group_id vpc_id v_switch_id",
}
KNOWN = {provider: COMMON | frozenset(keys.split()) for provider, keys in _KNOWN.items()}
"""The keys that Ray 2.60 reads; there is no list for a provider of somebody else's."""
# Without the key, Ray only stops machines, whose disks and addresses are paid for on and on.
STOPS_BY_DEFAULT = frozenset({"aws", "azure", "aliyun"})
# What Ray's code reads of a config of one's own provider without asking whether it is there.
DEMANDED_OF_EXTERNAL = (
    "max_workers",
    "available_node_types",
    "file_mounts",
    "cluster_synced_files",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)

Rule = Callable[[Config], Iterator[Finding]]


def check_provider(config: Config) -> Iterator[Finding]:
    """The type, the keys that are read, and the rules of the one provider."""
    provider = config.provider
    if not provider:
        if isinstance(config.get("provider"), dict) and not config.get("provider", "type"):
            yield config.error("provider-type", ("provider",), "lacks type; write type: aws, say")
        return
    yield from _check_type(config, provider)
    for key in sorted(set(config.mapping("provider")) - KNOWN.get(provider, frozenset())):
        if provider in KNOWN:
            alike = get_close_matches(key, sorted(KNOWN[provider]), n=1)
            more = f"did you mean {alike[0]}?" if alike else "remove it"
            text = f"unknown to the {provider} provider, which ignores it; {more}"
            yield config.warning("unknown-provider-key", ("provider", key), text)
    rule = OF_PROVIDER.get(provider)
    if rule is not None:
        yield from rule(config)
    if provider in STOPS_BY_DEFAULT and config.get("provider", "cache_stopped_nodes") is None:
        text = "no cache_stopped_nodes, so ray down only stops machines, and their disks are"
        text += " billed on; write cache_stopped_nodes: false"
        yield config.warning("cache-stopped-nodes", ("provider",), text)


def _check_type(config: Config, provider: str) -> Iterator[Finding]:
    place: Trail = ("provider", "type")
    if provider not in PROVIDERS:
        alike = get_close_matches(provider, sorted(PROVIDERS), n=1)
        more = f"did you mean {alike[0]}?" if alike else f"one of: {', '.join(sorted(PROVIDERS))}"
        text = f"Ray has no provider {printable(provider)!r}; {more}"
        yield config.error("provider-type", place, text)
    elif provider == "kuberay":
        text = "KubeRay's own, which ray up cannot start; write a RayCluster and kubectl apply it"
        yield config.error("provider-type", place, text)
    elif not config.launched:
        text = "ray up starts no such cluster; it is for ray start --head --autoscaling-config=FILE"
        yield config.warning("provider-not-launched", place, text)
    elif not ray_defaults(provider):
        text = "the wheel of Ray lacks its defaults, so ray up fails; it needs Ray from its source"
        yield config.warning("provider-not-shipped", place, text)


def _demand(config: Config, *keys: str) -> Iterator[Finding]:
    for key in keys:
        value = config.get("provider", key)
        if key in config.mapping("provider") and value is None:
            text = "null; write its value, without which ray up fails"
            yield config.warning("provider-key-missing", ("provider", key), text)
        elif not value:
            yield config.error("provider-key-missing", ("provider", key), "missing")


def _check_zones(config: Config, marks: str) -> Iterator[Finding]:
    region = config.string("provider", "region")
    for zone in config.string("provider", "availability_zone").split(","):
        zone = zone.strip()
        ending = zone.removeprefix(region)
        # One of Amazon's own names for zones: us-west-2a, or us-west-2-lax-1a of a city.
        if region and zone and (ending == zone or not ending or ending[0] not in marks):
            text = f"{printable(zone)} is not in {printable(region)}"
            yield config.error("zone-not-in-region", ("provider", "availability_zone"), text)


def _check_aws(config: Config) -> Iterator[Finding]:
    yield from _demand(config, "region")
    yield from _check_zones(config, "-abcdefghijklmnopqrstuvwxyz")


def _check_gcp(config: Config) -> Iterator[Finding]:
    yield from _demand(config, "project_id", "region", "availability_zone")
    yield from _check_zones(config, "-")


def _check_azure(config: Config) -> Iterator[Finding]:
    yield from _demand(config, "resource_group", "location")
    if not config.get("provider", "subscription_id"):
        text = "no subscription_id, and Ray's way to ask az for it fails with azure-cli 2.21 and"
        text += " later; write it"
        yield config.warning("subscription-missing", ("provider",), text)
    keys = [key for key in ("ssh_private_key", "ssh_public_key") if key in config.mapping("auth")]
    if len(keys) == 1:
        text = f"{keys[0]} without its other half; the azure provider takes both keys or none"
        yield config.error("key-pair", ("auth", keys[0]), text)


def _check_vsphere(config: Config) -> Iterator[Finding]:
    yield from _demand(config, "vsphere_config")


def _check_aliyun(config: Config) -> Iterator[Finding]:
    yield from _demand(config, "region")


def _check_external(config: Config) -> Iterator[Finding]:
    module = config.string("provider", "module")
    if not module:
        yield config.error("provider-key-missing", ("provider", "module"), "missing")
    elif "." not in module:
        text = f"{printable(module)!r} names no class; write package.module.Class"
        yield config.error("provider-module", ("provider", "module"), text)
    lacking = [key for key in DEMANDED_OF_EXTERNAL if key not in config.document.value]
    if lacking:
        text = f"an external provider gets no defaults, and Ray reads {', '.join(lacking)}"
        yield config.error("external-key-missing", (), f"{text}; write them, empty if need be")


def _check_local(config: Config) -> Iterator[Finding]:
    for key in (TYPES, "head_node", "worker_nodes"):
        if config.get(key):
            text = "not for the local provider, which refuses it; every machine is its own kind"
            yield config.error("local-node-types", (key,), text)
    provider = config.mapping("provider")
    if "coordinator_address" in provider:
        text = "the coordinator has neither login nor encryption; list the machines instead"
        yield config.warning("local-coordinator", ("provider", "coordinator_address"), text)
        if "max_workers" not in config.document.value:
            yield config.error(
                "local-max-workers", ("max_workers",), "missing; Ray demands it here"
            )
        return
    for key in ("head_ip", "worker_ips"):
        if provider.get(key) is None:
            text = "missing; write head_ip: ADDRESS and worker_ips: [ADDRESS, …], or []"
            yield config.error("provider-key-missing", ("provider", key), text)
    yield from _check_addresses(config)
    workers, limit = config.items("provider", "worker_ips"), config.integer("max_workers")
    least = config.integer("min_workers")
    least = len(workers) if least is None else min(least, len(workers))
    if limit is not None and limit < least:
        text = f"{limit} is below the {least} workers that Ray keeps; write max_workers and"
        text += f" min_workers: {limit}"
        yield config.error("local-max-workers", ("max_workers",), text)


def _check_addresses(config: Config) -> Iterator[Finding]:
    first: dict[str, Trail] = {}
    places: list[Trail] = [("provider", "head_ip"), ("provider", "external_head_ip")]
    places += [
        ("provider", "worker_ips", index)
        for index in range(len(config.items("provider", "worker_ips")))
    ]
    for place in places:
        address: Value = config.get(*place)
        if address is None:
            continue
        if not isinstance(address, str):
            yield config.error("wrong-type", place, "is no address; write it in quotes")
        elif _has_port(address):
            text = "must be an address without a port; a port goes into ~/.ssh/config"
            yield config.error("address-with-port", place, text)
        elif address in first and place[1] != "external_head_ip":
            text = "the same machine twice, whose two Rays would end each other; remove one"
            yield config.error("address-twice", place, text)
        else:
            first.setdefault(address, place)


def _has_port(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return ":" in address
    return False


OF_PROVIDER: Mapping[str, Rule] = {
    "aliyun": _check_aliyun,
    "aws": _check_aws,
    "azure": _check_azure,
    "external": _check_external,
    "gcp": _check_gcp,
    "local": _check_local,
    "vsphere": _check_vsphere,
}
