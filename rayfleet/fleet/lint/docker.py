"""Images, and the options that `docker run` gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rayfleet.fleet.lint.config import ROLES, Config, Text
from rayfleet.fleet.lint.finding import Finding

# Of an image: what a push of somebody else moves.
MOVING = re.compile(r"(latest|nightly)([-_.].*)?")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a place that configs name, not ours)
SIZE = re.compile(r"(?P<count>\d+(?:\.\d+)?)(?P<unit>[bkmgt]?)(?:i?b)?", re.IGNORECASE)
UNITS: Mapping[str, int] = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
SHM_SIZE = re.compile(r"--shm-size[= ]['\"]?([0-9.]+[A-Za-z]*)")
CACHE_SIZE = re.compile(r"--file-cache-max-size-mb[= ]['\"]?(\d+)")
OBJECT_STORE = re.compile(r"--object-store-memory[= ]['\"]?(\d+)")
RESTARTS = re.compile(r"--restart[= ]['\"]?(always|on-failure|unless-stopped)")
REMOVES_NOT = re.compile(r"--rm=['\"]?(0|false|f)\b", re.IGNORECASE)


def check_docker(config: Config) -> Iterator[Finding]:
    """An image and the container's name go together."""
    docker = config.mapping("docker")
    pictured = docker.get("image") or (docker.get("head_image") and docker.get("worker_image"))
    if config.in_docker and not pictured:
        text = "missing; write image, or both head_image and worker_image"
        yield config.error("docker-image", ("docker", "image"), text)
    if config.in_docker and not docker.get("container_name"):
        text = "missing; write container_name: ray_docker"
        yield config.error("docker-container-name", ("docker", "container_name"), text)
    if docker.get("container_name") and not config.in_docker:
        text = "missing, though there is a container_name; write an image, or docker: {}"
        yield config.error("docker-image", ("docker", "image"), text)


def check_images(config: Config) -> Iterator[Finding]:
    """Whoever starts a worker tomorrow should get today's image."""
    for place, image in config.images():
        if why := moving(image):
            text = f"{why}, so workers of another day run another image; write a version or digest"
            yield config.warning("image-moves", place, text)


def check_restart(config: Config) -> Iterator[Finding]:
    """Ray passes --rm, and Docker refuses that together with a restart policy."""
    for role in ROLES:
        options = config.options(role)
        if not any(REMOVES_NOT.search(text) for _, text in options):
            for place, text in joined(options):
                if RESTARTS.search(text):
                    what = "Ray adds --rm, which Docker refuses beside a restart policy; add --rm=0"
                    yield config.error("restart-without-rm", place, what)


def check_memory(config: Config) -> Iterator[Finding]:
    """Shared memory must hold what is told to live there."""
    for role in ROLES:
        sizes = [
            (place, size)
            for place, text in joined(config.options(role))
            for found in SHM_SIZE.findall(text)
            if (size := _bytes(found)) is not None
        ]
        if not sizes:
            continue
        place, shm = sizes[-1]
        for wanted, what, rule in _needs(config, role):
            if wanted > shm:
                text = f"{_shown(shm)} of shared memory, and {what} may take {_shown(wanted)};"
                text += " raise it, or lower that"
                yield config.error(rule, place, text)


def moving(image: str) -> str:
    """Why an image is not the same tomorrow; nothing if it has a digest or a version."""
    if "@" in image or "$" in image:
        return ""
    _, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        return "has no tag, which means latest"
    return f"has the tag {tag}, which moves" if MOVING.fullmatch(tag) else ""


def joined(options: list[Text]) -> Iterator[Text]:
    """Options and their values as one text each, however the list divides them."""
    waiting: Text | None = None
    for place, text in options:
        if waiting is not None and not text.startswith("-"):
            yield waiting[0], f"{waiting[1]} {text}"
            waiting = None
            continue
        if waiting is not None:
            yield waiting
        waiting = (place, text)
    if waiting is not None:
        yield waiting


def _needs(config: Config, role: str) -> Iterator[tuple[int, str, str]]:
    setup = config.commands("initialization_commands", "setup_commands", f"{role}_setup_commands")
    for _, text in setup:
        if SHARED_MEMORY in text:
            for count in CACHE_SIZE.findall(text):
                yield _count(count) * 2**20, "gcsfuse's cache there", "shm-below-cache"
    for _, text in config.commands(f"{role}_start_ray_commands"):
        for count in OBJECT_STORE.findall(text):
            yield _count(count), "Ray's object store", "shm-below-object-store"


def _count(digits: str) -> int:
    return int(digits[:18])


def _bytes(text: str) -> int | None:
    found = SIZE.fullmatch(text[:24])
    if found is None:
        return None
    return int(float(found["count"]) * UNITS[found["unit"].lower()])


def _shown(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size // 2**20} MiB"
