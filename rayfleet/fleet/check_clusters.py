"""The part of the second reading that is about clusters: names, places, sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

from rayfleet.fleet.accelerators import ACCELERATORS, BASE
from rayfleet.fleet.check_shared import Entry, mapping
from rayfleet.fleet.document import Document, Problem, Trail, Value
from rayfleet.fleet.model import RAY_VERSION, AuthMode, knows_tokens
from rayfleet.fleet.pins import TAG
from rayfleet.fleet.shape import did_you_mean, mappings

# A name becomes a file name, an identity a label and part of every VM's name (63 characters).
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
ZONE = re.compile(r"[a-z]{1,20}-[a-z]{1,20}[0-9]{1,3}-[a-z]")
BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
NEEDED = {"provider": "gcp", "image": "cluster", "template": "gcp.yaml.j2", "accelerator": "v5e"}


def check_clusters(document: Document, *, templates: Path) -> Iterator[Problem]:
    """Every mistake of meaning in ``defaults`` and ``clusters``."""
    clusters, defaults = document.value.get("clusters"), document.value.get("defaults")
    if clusters == {}:
        yield document.problem(("clusters",), "there is no cluster; write at least one")
    shared = mapping(defaults)
    known = {path.name: path for path in sorted(templates.glob("*.j2"))}
    regions = _regions(document)
    yield from _check_choices(document, ("defaults",), shared, known)
    yield from _check_limit(document, ("defaults", "max_workers"), shared.get("max_workers"))
    for name, entry in mappings(clusters):
        trail: Trail = ("clusters", name)
        yield from _check_name(document, trail, name)
        yield from _check_needed(document, trail, entry, shared)
        yield from _check_choices(document, trail, entry, known)
        yield from _check_place(document, trail, entry, regions)
        yield from _check_texts(document, trail, entry)
        yield from _check_ray(document, trail, entry, shared)
        yield from _check_workers(document, trail, entry, shared)
    yield from _check_identities(document, dict(mappings(clusters)), shared)
    yield from _check_providers(document, dict(mappings(clusters)), shared)


def _check_name(document: Document, trail: Trail, name: str) -> Iterator[Problem]:
    if not NAME.fullmatch(name):
        text = f"{name!r} is no cluster name; write up to 40 of a-z, 0-9 and -, a letter first"
        yield document.problem(trail, text)


def _check_needed(
    document: Document, trail: Trail, entry: Entry, shared: Entry
) -> Iterator[Problem]:
    for key, example in NEEDED.items():
        if entry.get(key) is None and shared.get(key) is None:
            text = f"missing here and in defaults; write {key}: {example}"
            yield document.problem((*trail, key), text)


def _check_choices(
    document: Document, trail: Trail, entry: Entry, templates: Mapping[str, Path]
) -> Iterator[Problem]:
    images = document.value.get("images")
    image, kind, template = entry.get("image"), entry.get("accelerator"), entry.get("template")
    if isinstance(image, str) and isinstance(images, dict) and image not in images:
        text = f"there is no image {image!r}; {did_you_mean(image, images)}"
        yield document.problem((*trail, "image"), text)
    if isinstance(kind, str) and kind not in ACCELERATORS:
        text = f"there is no accelerator {kind!r}; {did_you_mean(kind, ACCELERATORS)}"
        yield document.problem((*trail, "accelerator"), text)
    if isinstance(template, str) and template not in templates:
        text = f"there is no template {template!r} in infra/templates"
        yield document.problem((*trail, "template"), f"{text}; {did_you_mean(template, templates)}")


def _check_place(
    document: Document, trail: Trail, entry: Entry, regions: Mapping[str, None] | None
) -> Iterator[Problem]:
    zone, region = entry.get("zone"), entry.get("region")
    if isinstance(zone, str) and not ZONE.fullmatch(zone):
        text = f"{zone!r} is no zone; write a region and a letter, such as us-east5-b"
        yield document.problem((*trail, "zone"), text)
        return
    if isinstance(zone, str) and isinstance(region, str) and zone[:-2] != region:
        text = f"{zone} is not in the region {region}; write region: {zone[:-2]} or leave it out"
        yield document.problem((*trail, "zone"), text)
        return
    region, key = (region, "region") if isinstance(region, str) else (_region(zone), "zone")
    if isinstance(region, str) and regions is not None and region not in regions:
        text = f"there is no registry in the region {region}; {did_you_mean(region, regions)}"
        yield document.problem((*trail, key), f"{text} (registries.regions)")


def _regions(document: Document) -> Mapping[str, None] | None:
    """The regions that have a registry, in order; None if the file does not list any."""
    regions = mapping(document.value.get("registries")).get("regions")
    if not isinstance(regions, list):
        return None
    return dict.fromkeys(item for item in regions if isinstance(item, str))


def _region(zone: Value) -> str | None:
    return zone[:-2] if isinstance(zone, str) else None


def _check_texts(document: Document, trail: Trail, entry: Entry) -> Iterator[Problem]:
    tag, bucket = entry.get("tag"), entry.get("bucket")
    if isinstance(tag, str) and not TAG.fullmatch(tag):
        text = f'{tag!r} is no image tag; write up to 128 of A-Z, a-z, 0-9 and _ . - ("20251209")'
        yield document.problem((*trail, "tag"), text)
    if isinstance(bucket, str) and not BUCKET.fullmatch(bucket):
        text = f"{bucket!r} is no bucket name; write it without gs://, such as marin-us-east5"
        yield document.problem((*trail, "bucket"), text)


def _check_ray(document: Document, trail: Trail, entry: Entry, shared: Entry) -> Iterator[Problem]:
    """Whether what a fixed tag names knows tokens, where the cluster wants them."""
    tag, ray = entry.get("tag"), entry.get("ray")
    if isinstance(ray, str) and not RAY_VERSION.fullmatch(ray):
        yield document.problem(
            (*trail, "ray"), f'{ray!r} is no version of Ray; write ray: "2.53.0"'
        )
        return
    if ray is not None and not tag:
        text = "goes with a tag; what LATEST has is in the pins; remove it"
        yield document.problem((*trail, "ray"), text)
        return
    auth = {**mapping(shared.get("auth")), **mapping(entry.get("auth"))}
    if not tag or auth.get("mode", AuthMode.TOKEN) != AuthMode.TOKEN:
        return
    if ray is None:
        text = (
            "nothing says which Ray this image has, and a Ray before 2.52 lets everybody in; "
            'write ray: "2.53.0" (what it has) or auth: {mode: disabled}'
        )
        yield document.problem((*trail, "tag"), text)
    elif isinstance(ray, str) and not knows_tokens(ray):
        text = f"Ray {ray} knows no tokens and lets everybody in; write auth: {{mode: disabled}}"
        yield document.problem((*trail, "ray"), text)


def _check_workers(
    document: Document, trail: Trail, entry: Entry, shared: Entry
) -> Iterator[Problem]:
    limit = entry.get("max_workers", shared.get("max_workers", 1024))
    yield from _check_limit(document, (*trail, "max_workers"), entry.get("max_workers"))
    kind = ACCELERATORS.get(str(entry.get("accelerator", shared.get("accelerator"))))
    total = 0
    for name, count in mappings(entry.get("workers")):
        here = (*trail, "workers", name)
        if kind is not None and name not in kind.worker_keys:
            hint = did_you_mean(name, kind.worker_keys)
            if name == kind.base:
                hint = f"it is the base slice: write {BASE}"
            yield document.problem(here, f"{kind.name} has no slice {name!r}; {hint}")
        low, high = count.get("min", 0), count.get("max", limit)
        yield from _check_range(document, here, low, high, given=count)
        total += low if _is_count(low) else 0
    if _is_count(limit) and total > limit:
        text = (
            f"the minimums add up to {total}, above max_workers {limit}; write max_workers: {total}"
        )
        yield document.problem((*trail, "workers"), text)


def _check_range(
    document: Document, trail: Trail, low: Value, high: Value, *, given: Entry
) -> Iterator[Problem]:
    negative = False
    for key, value in (("min", low), ("max", high)):
        if key in given and _is_whole(value) and value < 0:
            negative = True
            yield document.problem((*trail, key), f"{value} is negative; write 0 or more")
    if negative or "max" not in given:
        return
    if _is_whole(low) and _is_whole(high) and low > high:
        text = f"min {low} is above max {high}; write max: {low} or a smaller min"
        yield document.problem((*trail, "min"), text)


def _check_limit(document: Document, trail: Trail, limit: Value) -> Iterator[Problem]:
    if _is_whole(limit) and limit < 0:
        yield document.problem(trail, f"{limit} is negative; write 0 or more")


def _check_identities(
    document: Document, clusters: dict[str, Entry], shared: Entry
) -> Iterator[Problem]:
    prefix = shared.get("name_prefix", "")
    owners: dict[str, str] = {}
    for name, entry in clusters.items():
        given = entry.get("identity")
        identity = given if isinstance(given, str) else f"{prefix}{name}"
        trail: Trail = ("clusters", name, "identity") if "identity" in entry else ("clusters", name)
        if NAME.fullmatch(name) and not NAME.fullmatch(identity):
            text = f"{identity!r} is no identity; write up to 40 of a-z, 0-9 and -, a letter first"
            yield document.problem(trail, text)
        if identity in owners:
            text = f"the identity {identity} is that of {owners[identity]} too; write another"
            yield document.problem(trail, text)
        owners.setdefault(identity, name)
    for identity, name in owners.items():
        if identity in clusters and identity != name:
            text = f"the name is also the identity of {name}; write another name"
            yield document.problem(("clusters", identity), text)


def _check_providers(
    document: Document, clusters: dict[str, Entry], shared: Entry
) -> Iterator[Problem]:
    used = {name: entry.get("provider", shared.get("provider")) for name, entry in clusters.items()}
    for name, provider in used.items():
        first = next(iter(used.values()))
        if isinstance(provider, str) and isinstance(first, str) and provider != first:
            text = f"one fleet has one provider, and this one began with {first}; write {first}"
            yield document.problem(("clusters", name, "provider"), text)


def _is_whole(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Value) -> TypeGuard[int]:
    return _is_whole(value) and value >= 0
