"""The cluster's name, its node types, and how many workers there may be."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rayfleet.fleet.lint.config import TYPES, Config
from rayfleet.fleet.lint.finding import Finding, printable

# Google's machines are called ray-NAME-worker-12345678-compute, in 63 characters at most; a TPU
# ends in tpu, and the head is one of Compute Engine.
GOOGLE_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?", re.ASCII)
LONGEST_FOR_WORKERS = 35
LONGEST_FOR_THE_HEAD = 37
# It is part of paths, of names of machines and of tags.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
GOOGLE_LABEL = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)


def check_name(config: Config) -> Iterator[Finding]:
    """Ray takes any text as a name, and clouds and shells do not."""
    name = config.get("cluster_name")
    usual = config.defaults.get("cluster_name")
    if "cluster_name" not in config.document.value and isinstance(usual, str):
        text = f"missing, so Ray calls it {usual}, as every cluster without a name; write one"
        yield config.warning("cluster-name", ("cluster_name",), text)
    if not isinstance(name, str):
        return
    if config.provider == "gcp":
        most = _longest_name(config)
        if not GOOGLE_NAME.fullmatch(name) or len(name) > most:
            text = f"{printable(name)!r} must be up to {most} of a-z, 0-9 and -, a letter first"
            yield config.error("cluster-name", ("cluster_name",), text)
    elif not NAME.fullmatch(name):
        text = f"{printable(name)!r} becomes part of paths and commands; write a-z, 0-9 and - only"
        yield config.error("cluster-name", ("cluster_name",), text)
    elif name != name.lower():
        text = f"{name} has capitals, which not every cloud takes; write {name.lower()}"
        yield config.warning("cluster-name", ("cluster_name",), text)


def check_limits(config: Config) -> Iterator[Finding]:
    """Totals of the whole cluster; Ray's own default counts where the file says nothing."""
    if config.get("upscaling_speed") == 0:
        text = "0 adds workers one at a time, whatever waits; write 1.0"
        yield config.warning("upscaling-speed", ("upscaling_speed",), text)
    if config.provider == "local":
        return
    own = config.integer("max_workers")
    written = "max_workers" in config.document.value
    limit = own if written else config.defaults.get("max_workers")
    if not isinstance(limit, int):
        return
    said = f"max_workers: {limit}" if written else f"no max_workers, so Ray takes {limit}, which"
    total = sum(config.limit_of(name, "min_workers") or 0 for name in config.node_types)
    if total > limit:
        text = f"{said} is below the sum of all min_workers, {total}"
        text = text.removeprefix("max_workers: ")
        yield config.error("max-workers-below-sum", ("max_workers",), text)
    if not written and config.mapping(TYPES):
        above = [name for name in config.node_types if _most(config, name) > limit]
        if above and total <= limit:
            text = f"{said} is below what {printable(above[0])} may have; write max_workers"
            yield config.warning("max-workers-missing", ("max_workers",), text)


def check_node_types(config: Config) -> Iterator[Finding]:
    """The head's type, and the limits of each."""
    if config.provider == "local":
        return
    types, head = config.node_types, config.head_type
    if types and head not in types:
        text = f"{printable(head)!r} is not one of available_node_types" if head else "missing"
        yield config.error("head-node-type", ("head_node_type",), text)
    for name in config.mapping(TYPES):
        low, high = config.limit_of(name, "min_workers"), config.limit_of(name, "max_workers")
        for key, value in (("min_workers", low), ("max_workers", high)):
            if value is not None and value < 0:
                text = f"{value} is negative; write 0 or more"
                yield config.error("negative-workers", (TYPES, name, key), text)
        if low is not None and high is not None and low > high >= 0:
            text = f"{low} is above max_workers {high}"
            yield config.error("min-above-max", (TYPES, name, "min_workers"), text)
        if name == head and ((low or 0) > 0 or (high or 0) > 0):
            text = "the head's type may have workers too, of the head's size; write max_workers: 0"
            yield config.warning("head-type-with-workers", (TYPES, name), text)
        if config.provider == "gcp" and not GOOGLE_LABEL.fullmatch(name):
            text = "becomes a label on Google's machines; write up to 63 of a-z, 0-9, _ and -"
            yield config.error("node-type-name", (TYPES, name), text)


def _longest_name(config: Config) -> int:
    workers = [one for name, one in config.node_types.items() if name != config.head_type]
    machines = [one.get("node_config") for one in workers if isinstance(one, dict)]
    tpus = [isinstance(one, dict) and "acceleratorType" in one for one in machines]
    return LONGEST_FOR_THE_HEAD if tpus and all(tpus) else LONGEST_FOR_WORKERS


def _most(config: Config, name: str) -> int:
    return config.limit_of(name, "max_workers") or 0
