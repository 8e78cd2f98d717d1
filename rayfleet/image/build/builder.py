"""Which docker client builds, and how it is asked to.

A machine may have several: one without buildx first on PATH, which cannot use BuildKit, and an
older one behind it, which can.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing
from rayfleet.image.machine import proxy_variables
from rayfleet.image.plan import BuildPlan
from rayfleet.process import Finished, run

PROBE_SECONDS = 30.0
# From this major version on the client hands BuildKit builds to its buildx plugin only:
# https://docs.docker.com/engine/release-notes/23.0/
BUILDX_ONLY_SINCE = 23


class Kind(IntEnum):
    """How a client builds; the higher, the better."""

    CLASSIC = 1
    BUILDKIT = 2
    BUILDX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A docker client (``program`` is its path) and the best that it can do."""

    program: str
    kind: Kind

    def command(
        self, plan: BuildPlan, context: Path, id_file: Path, *, env: Mapping[str, str]
    ) -> list[str]:
        """The arguments of a build of ``plan`` that writes the image's ID to ``id_file``.

        The network is the host's: a bridge may have no way to the machine's proxy or index.
        Proxies go by name: their values, which may hold passwords, stay in ``env``.
        """
        verb = ["build"]
        if self.kind is Kind.BUILDX:
            # An attestation would count as a version of its own in the cleanup policy.
            verb = ["buildx", "build", "--load", "--provenance=false", "--sbom=false"]
            verb += ["--allow", "network.host"]
        if self.kind is not Kind.CLASSIC:
            verb += ["--progress", "plain"]
        arguments = [f"{key}={value}" for key, value in plan.arguments().items()]
        arguments += proxy_variables(env)
        labels = [f"{key}={value}" for key, value in plan.labels().items()]
        return [
            self.program,
            *verb,
            *("--network", "host"),
            *("--file", str(context / plan.dockerfile)),
            *("--iidfile", str(id_file)),
            *_each("--build-arg", arguments),
            *_each("--label", labels),
            str(context),
        ]

    def environment(self, env: Mapping[str, str], *, engine: str) -> dict[str, str]:
        """``env`` for that command, so that it uses the engine at the address ``engine``."""
        kept = {name: value for name, value in env.items() if name != "DOCKER_CONTEXT"}
        buildkit = "0" if self.kind is Kind.CLASSIC else "1"
        return {**kept, "DOCKER_HOST": engine, "DOCKER_BUILDKIT": buildkit}

    def refuse_unsupported(self, dockerfile: Path) -> None:
        """Refuse a Dockerfile that the engine's classic builder cannot build.

        Raises:
            PrerequisiteMissing: it mounts caches or secrets, and there is no BuildKit.
        """
        text = dockerfile.read_text(errors="replace")
        if self.kind is Kind.CLASSIC and re.search(r"^\s*(RUN|COPY)\s+--(mount|link)", text, re.M):
            raise PrerequisiteMissing(
                f"{dockerfile.name} needs BuildKit",
                why=f"{self.program} has no buildx plugin, and the classic builder has no mounts",
                next_step="install docker-buildx, then run: invoke doctor",
            )


def find_builder(
    env: Mapping[str, str], probe: Callable[[list[str]], Finished] | None = None
) -> Builder:
    """The best builder among all docker clients on PATH; the first of equals.

    Raises:
        PrerequisiteMissing: there is no docker client.
    """
    ask = probe or (lambda argv: run(argv, timeout=PROBE_SECONDS, env=env))
    best: Builder | None = None
    for program in _clients(env.get("PATH", os.defpath)):
        kind = _kind(program, ask)
        if best is None or kind > best.kind:
            best = Builder(program=program, kind=kind)
        if kind is Kind.BUILDX:
            break
    if best is None:
        raise PrerequisiteMissing("there is no docker client on PATH", next_step="invoke doctor")
    return best


def _kind(program: str, ask: Callable[[list[str]], Finished]) -> Kind:
    if ask([program, "buildx", "version"]).ok:
        return Kind.BUILDX
    version = re.search(r"version v?(\d+)\.", "\n".join(ask([program, "--version"]).tail))
    if version and int(version[1]) < BUILDX_ONLY_SINCE:
        return Kind.BUILDKIT
    return Kind.CLASSIC


def _clients(path: str) -> Iterable[str]:
    seen: set[Path] = set()
    for folder in path.split(os.pathsep):
        found = shutil.which("docker", path=folder) if folder else None
        if found is not None and Path(found).resolve() not in seen:
            seen.add(Path(found).resolve())
            yield found


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]
