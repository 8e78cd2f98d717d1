"""A project in git with an image that needs no network, and a fleet of real registries."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient

from rayfleet.console import Console
from rayfleet.fleet.model import (
    Fleet,
    ImageFamily,
    Outputs,
    Registries,
    RolloutPolicy,
    SandboxPlace,
)
from rayfleet.image.pipeline import Pipeline
from rayfleet.image.publish.published import Published
from rayfleet.project import Project
from tests.support.registry import LocalRegistry

DOCKERFILE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS config
COPY build-config/ /build-config/
FROM ${BASE_IMAGE}
ARG IMAGE_TAG
LABEL test.tag=${IMAGE_TAG}
COPY docker/hello /hello
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A project, its fleet, and one registry per region. ``name`` is unlike any other's."""

    project: Project
    fleet: Fleet
    name: str
    registries: dict[str, LocalRegistry]

    @property
    def base_image(self) -> str:
        """What the image is built on."""
        return self.fleet.images["cluster"].base_image

    @property
    def repository(self) -> str:
        """The image's repository inside each registry."""
        return f"{self.fleet.project}/marin/{self.name}"

    def pipeline(self, console: Console, **options: Any) -> Pipeline:
        """The way of the image; registries make repositories by themselves."""
        return Pipeline(
            project=self.project,
            fleet=self.fleet,
            console=console,
            **{
                "ensure_repositories": lambda *_: None,
                "protect_pin": lambda *_: None,
                **options,
            },
        )

    def publish(self, console: Console, **options: Any) -> Published:
        """Build and publish the image; raises if a region failed."""
        published = self.pipeline(console, **options).release()
        published.require()
        return published

    def write_passwords(self, **wrong: str) -> None:
        """Write the sandbox's password file; ``wrong`` maps a region to a wrong password."""
        entries = {
            registry.host: {
                "username": registry.username,
                "password": wrong.get(region.replace("-", "_"), registry.password),
            }
            for region, registry in self.registries.items()
        }
        path = self.fleet.sandbox.credentials if self.fleet.sandbox else None
        assert path is not None
        path.touch(mode=0o600)
        path.write_text(json.dumps(entries))


def make_site(folder: Path, registries: dict[str, LocalRegistry]) -> Site:
    """Lay out a committed project in ``folder`` whose fleet has the given registries."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    root = folder / "project"
    write_project(root)
    state = folder / "state"
    state.mkdir()
    project = Project(root=root, fleet_file=root / "fleet.yaml", state=state)
    site = Site(
        project=project,
        fleet=_fleet(project, name, {region: each.host for region, each in registries.items()}),
        name=name,
        registries=registries,
    )
    site.write_passwords()
    return site


def import_base_image(site: Site) -> None:
    """Make the site's base image in the engine: one small file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        entry = tarfile.TarInfo("base")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"base\n"))
    repository, _, tag = site.base_image.partition(":")
    with closing(DockerClient.from_env()) as client:
        client.api.import_image_from_data(content.getvalue(), repository=repository, tag=tag)


def engine_names(site: Site) -> list[str]:
    """Every name in the engine that has to do with the site."""
    # Not client.images.list(), which fails when another test removes an image meanwhile.
    with closing(DockerClient.from_env()) as client:
        listed = [name for each in client.api.images() for name in each["RepoTags"] or ()]
    return sorted(name for name in listed if site.name in name)


def forget_images(site: Site) -> None:
    """Remove what a test left in the engine, and nothing else."""
    with closing(DockerClient.from_env()) as client:
        for name in engine_names(site):
            client.images.remove(name, force=True)
        # What lost its name to another one.
        title = f"org.opencontainers.image.title={site.name}"
        for image in client.api.images(filters={"label": title}):
            client.images.remove(image["Id"], force=True)


def write_project(root: Path) -> None:
    """A git repository with a Dockerfile, one file to copy, a fleet file, and one file beside."""
    (root / "docker").mkdir(parents=True)
    (root / "docker" / "Dockerfile").write_text(DOCKERFILE)
    (root / "docker" / "hello").write_text("hello\n")
    (root / "fleet.yaml").write_text("project: test-project\n")
    (root / "notes.txt").write_text("not part of the context\n")
    git(root, "init", "--quiet")
    commit(root, "First")


def commit(root: Path, message: str) -> str:
    """Commit everything and return the commit."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)
    return git(root, "rev-parse", "HEAD").strip()


def git(root: Path, *arguments: str) -> str:
    """Run git with an identity of its own and no configuration of the user's."""
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command: Sequence[str] = ("git", "-C", str(root), *identity, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def _fleet(project: Project, name: str, hosts: dict[str, str]) -> Fleet:
    image = ImageFamily(
        family="cluster",
        name=name,
        repository="marin",
        dockerfile="docker/Dockerfile",
        context=("docker",),
        base_image=f"rayfleet-test/{name}:base",
    )
    return Fleet(
        project="test-project",
        source=project.fleet_file,
        images={"cluster": image},
        registries=Registries(regions=tuple(hosts), hosts=hosts),
        clusters={},
        rollout=RolloutPolicy(),
        outputs=Outputs(
            pins=project.state / "images.lock.yaml", configs=project.state / "clusters"
        ),
        sandbox=SandboxPlace(
            id="test",
            network="",
            engine="",
            credentials=project.state / "registries.json",
            private_key=Path(),
            public_key=Path(),
            registry_ports={},
            api="",
        ),
    )
