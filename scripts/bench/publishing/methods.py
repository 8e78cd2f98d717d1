"""The ways to publish that are compared: each is one program to run, given the job."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from publishing import task

COPY = "skopeo --insecure-policy copy --quiet --src-tls-verify=false --dest-tls-verify=false"
# isal's level 1, which is ours, packs a little better than this of zlib's kind.
FAST = "--dest-compress-format gzip --dest-compress-level 1"
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One publish. ``folder`` is the method's own, empty when its registries are.

    ``destinations`` maps a region to ``host/path/of/repository``.
    """

    image: str
    destinations: dict[str, str]
    tags: tuple[str, ...]
    folder: Path

    @property
    def result(self) -> Path:
        """Where a program that measures itself writes what it measured."""
        return self.folder / "result.json"


Around = Callable[[Path, Mapping[str, int], Mapping[str, Path]], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way: its name in the figures and in words, the program, whether its cold run is
    short enough to be repeated, and whether it is measured over the wide-area links too.

    ``around`` makes what the program needs besides the registries, given the method's folder,
    the ports and the folders of their blobs by region.
    """

    key: str
    title: str
    program: Callable[[Job], list[str]]
    quick: bool
    wide: bool = False
    around: Around | None = None


def _docker_loop(job: Job) -> list[str]:
    """As in a Makefile: tag all, then push all, one after the other."""
    names = [f"{each}:{tag}" for each in job.destinations.values() for tag in job.tags]
    return _shell(
        [
            *(f"docker tag {job.image} {name}" for name in names),
            *(f"docker push {name}" for name in names),
        ]
    )


def _docker_parallel(job: Job) -> list[str]:
    """The loop with a shell's ``&``: a chain of pushes per registry, all at the same time."""
    chains = [
        [f"docker push --quiet {each}:{tag}" for tag in job.tags]
        for each in job.destinations.values()
    ]
    names = [f"{each}:{tag}" for each in job.destinations.values() for tag in job.tags]
    return _shell([*(f"docker tag {job.image} {name}" for name in names), *_side_by_side(chains)])


def _push_and_copy(job: Job) -> list[str]:
    """Push once; then all regions copy from there at the same time."""
    first, *others = job.destinations.values()
    tag, *more = job.tags
    source = f"docker://{first}:{tag}"
    copies = [[f"{COPY} {source} docker://{first}:{each}" for each in more]]
    copies += [
        [f"{COPY} {source} docker://{other}:{each}" for each in job.tags] for other in others
    ]
    begin = [f"docker tag {job.image} {first}:{tag}", f"docker push {first}:{tag}"]
    return _shell([*begin, *_side_by_side(copies)])


def _layout_and_copy(job: Job) -> list[str]:
    """Write an OCI layout once, packed as lightly as ours; then copy it to all regions at the
    same time."""
    layout = f"oci:{shlex.quote(str(job.folder / 'layout'))}:image"
    copies = [
        [f"{COPY} {layout} docker://{each}:{tag}" for tag in job.tags]
        for each in job.destinations.values()
    ]
    return _shell([f"{COPY} {FAST} docker-daemon:{job.image} {layout}", *_side_by_side(copies)])


def _own_program(name: str) -> Callable[[Job], list[str]]:
    """A program of ours that gets the job as JSON and writes its result as JSON."""

    def program(job: Job) -> list[str]:
        path = job.folder / "job.json"
        described = {
            "image": job.image,
            "destinations": job.destinations,
            "tags": job.tags,
            "state": str(job.folder / "state"),
            "result": str(job.result),
        }
        path.write_text(json.dumps(described))
        return [sys.executable, str(HERE / name), str(path)]

    return program


def _shell(lines: Sequence[str]) -> list[str]:
    return ["bash", "-c", "\n".join(["set -eu", *lines])]


def _side_by_side(chains: Sequence[Sequence[str]]) -> list[str]:
    """Run every chain of commands at the same time as the others, and fail if one does."""
    started = [f"{{ {' && '.join(chain)}; }} &\npids+=($!)" for chain in chains]
    return ["pids=()", *started, 'for pid in "${pids[@]}"; do wait "$pid"; done']


def _task(job: Job) -> list[str]:
    return task.command(job.folder, job.image, job.tags)


METHODS = (
    Method(
        key="docker",
        title="docker tag + push, in a loop",
        program=_docker_loop,
        quick=False,
        wide=True,
    ),
    Method(
        key="docker_parallel",
        title="docker push, a chain per registry",
        program=_docker_parallel,
        quick=False,
        wide=True,
    ),
    Method(
        key="docker_py",
        title="docker-py, a thread per registry",
        program=_own_program("docker_py_run.py"),
        quick=False,
    ),
    Method(
        key="skopeo",
        title="push once + parallel skopeo copies",
        program=_push_and_copy,
        quick=True,
        wide=True,
    ),
    Method(
        key="skopeo_oci",
        title="skopeo to a layout + parallel copies",
        program=_layout_and_copy,
        quick=True,
        wide=True,
    ),
    Method(
        key="rayfleet",
        title="rayfleet, the publish alone",
        program=_own_program("rayfleet_run.py"),
        quick=True,
        wide=True,
    ),
    Method(
        key="invoke",
        title="invoke image.publish",
        program=_task,
        quick=True,
        wide=True,
        around=task.fleet_around,
    ),
)
