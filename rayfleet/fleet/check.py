"""Second reading of a fleet file: does what it says make sense?

Works on the raw tree, so that a file whose shape is wrong in one place is still checked in all
others. Whatever has the wrong type is left to shape.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from rayfleet.arguments import age_of
from rayfleet.fleet.check_access import check_access
from rayfleet.fleet.check_clusters import check_clusters
from rayfleet.fleet.check_rollout import check_rollout
from rayfleet.fleet.check_shared import check_repeats, inside, mapping
from rayfleet.fleet.document import Document, Problem, Trail, Value
from rayfleet.fleet.shape import MOST, mappings

TEMPLATES = Path("infra/templates")
PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
IMAGE_PATH = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*")
FAMILY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
BASE_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")
SET = re.compile(r"\[[^][]*\]")  # of a glob
LAYOUT = str.maketrans("\n\t", "  ")
PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w-]*)\}")


def check_document(document: Document, *, root: Path) -> tuple[Problem, ...]:
    """Every mistake of meaning in the file; ``root`` is the project that its paths are in."""
    checks = (
        _check_project(document),
        _check_texts(document),
        check_access(document),
        _check_images(document, root),
        _check_cleanup(document),
        check_clusters(document, templates=root / TEMPLATES),
        check_rollout(document, root),
        _check_jobs(document),
    )
    return tuple(problem for check in checks for problem in islice(check, MOST))


def _check_project(document: Document) -> Iterator[Problem]:
    project = document.value.get("project")
    if isinstance(project, str) and not PROJECT.fullmatch(project):
        text = f"{project!r} is no project id; write 6 to 30 of a-z, 0-9 and -, a letter first"
        yield document.problem(("project",), text)


def _check_texts(document: Document) -> Iterator[Problem]:
    for trail, text in _texts(document.value, ()):
        shown = text.translate(LAYOUT) if _is_program(trail) else text
        if not shown.isprintable():
            hidden = next(one for one in shown if not one.isprintable())
            yield document.problem(trail, f"holds the character {hidden!a}; remove it")
        known = _placeholders_at(document, trail)
        for name in PLACEHOLDER.findall(text):
            if known is not None and name not in known:
                usable = ", ".join(f"{{{item}}}" for item in known) or "none"
                yield document.problem(
                    trail, f"the placeholder {{{name}}} is unknown here; write one of: {usable}"
                )


def _is_program(trail: Trail) -> bool:
    """Whether there is a program, which may have lines, and braces of its own."""
    return trail[:2] == ("rollout", "gates")


def _placeholders_at(document: Document, trail: Trail) -> Sequence[str] | None:
    if _is_program(trail):
        return None
    if trail[0] == "outputs" or "ssh" in trail[1:3]:
        return ("state",)
    if trail != ("registries", "host"):
        return ()
    return ("region", "port") if "sandbox" in _providers(document) else ("region",)


def _providers(document: Document) -> set[Value]:
    defaults = document.value.get("defaults")
    entries = [entry for _, entry in mappings(document.value.get("clusters"))]
    if isinstance(defaults, dict):
        entries.append(defaults)
    return {entry["provider"] for entry in entries if isinstance(entry.get("provider"), str)}


def _texts(value: Value, trail: Trail) -> Iterator[tuple[Trail, str]]:
    if isinstance(value, str):
        yield trail, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if not key.isprintable():
                yield (*trail, key), key
            yield from _texts(item, (*trail, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*trail, index))


def _check_images(document: Document, root: Path) -> Iterator[Problem]:
    images = document.value.get("images")
    if images == {}:
        yield document.problem(("images",), "there is no image; write at least one family")
    taken: dict[tuple[str, str], str] = {}
    for family, entry in mappings(images):
        trail: Trail = ("images", family)
        if not FAMILY.fullmatch(family):
            text = f"{family!r} is no name of an image; write up to 63 of A-Z, a-z, 0-9, _ and -"
            yield document.problem(trail, text)
        for key in ("name", "repository"):
            value = entry.get(key)
            if isinstance(value, str) and not IMAGE_PATH.fullmatch(value):
                text = f"{value!r} is no name for a registry; write a-z, 0-9 and single . _ -"
                yield document.problem((*trail, key), text)
        repository, name = entry.get("repository"), entry.get("name")
        if isinstance(repository, str) and isinstance(name, str):
            first = taken.setdefault((repository, name), family)
            if first != family:
                text = f"the same repository and name as {first}; write another name"
                yield document.problem((*trail, "name"), text)
        yield from _check_build(document, root, trail, entry)
        bases = _bases(images, family)
        if family in bases and family == min(bases):  # of a circle, one is reported
            text = f"{family} is built on itself; write debian:bookworm-slim or another family"
            yield document.problem((*trail, "base_image"), text)


def _bases(images: Value, family: str) -> set[str]:
    """The families that one is built on, directly or not."""
    entries, found = dict(mappings(images)), set[str]()
    base = entries[family].get("base_image")
    while isinstance(base, str) and base in entries and base not in found:
        found.add(base)
        base = entries[base].get("base_image")
    return found


def _check_build(
    document: Document, root: Path, trail: Trail, entry: dict[str, Value]
) -> Iterator[Problem]:
    base = entry.get("base_image")
    if isinstance(base, str) and not BASE_IMAGE.fullmatch(base):
        text = f"{base!r} is no image; write debian:bookworm-slim" if base else "empty; write one"
        yield document.problem((*trail, "base_image"), text)
    dockerfile = entry.get("dockerfile")
    if isinstance(dockerfile, str) and not inside(root, dockerfile).is_file():
        text = (
            f"there is no file {dockerfile!r} in the project; write a path like docker/Dockerfile"
        )
        yield document.problem((*trail, "dockerfile"), text)
    context = entry.get("context")
    if context == []:
        yield document.problem((*trail, "context"), "empty; write [docker]")
    for index, path in enumerate(context if isinstance(context, list) else ()):
        if isinstance(path, str) and not inside(root, path).exists():
            text = f"there is no {path!r} in the project; write a file or folder that exists"
            yield document.problem((*trail, "context", index), text)


def _check_cleanup(document: Document) -> Iterator[Problem]:
    cleanup = mapping(mapping(document.value.get("registries")).get("cleanup"))
    age, keep = cleanup.get("delete_older_than"), cleanup.get("keep_most_recent")
    if isinstance(age, str) and age_of(age) is None:
        text = f"{age!r} is no duration; write a count and d, h or m, such as 30d"
        yield document.problem(("registries", "cleanup", "delete_older_than"), text)
    if isinstance(keep, int) and not isinstance(keep, bool) and keep < 1:
        text = f"{keep} would keep no version; write 1 or more"
        yield document.problem(("registries", "cleanup", "keep_most_recent"), text)


def _check_jobs(document: Document) -> Iterator[Problem]:
    jobs = document.value.get("jobs")
    globs = jobs.get("infrastructure") if isinstance(jobs, dict) else None
    if not isinstance(globs, list):
        return
    trail: Trail = ("jobs", "infrastructure")
    for index, glob in enumerate(globs):
        # A glob without a letter or digit of its own takes every job, and none is restored.
        if isinstance(glob, str) and not re.search(r"[^\W_]", SET.sub("", glob)):
            text = f"{glob!r} names no job in particular; write the start of its id: cleanup-*"
            yield document.problem((*trail, index), text)
    yield from check_repeats(document, trail, globs)
