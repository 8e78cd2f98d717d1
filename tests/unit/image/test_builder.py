"""Which docker client builds, and with what command."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing
from rayfleet.image.build.builder import Builder, Kind, find_builder
from tests.unit.image.test_plan import plan

BUILDX = 'case "$1" in buildx) exit 0;; esac; echo "Docker version 28.2.2, build x"'
MODERN = 'case "$1" in buildx) exit 1;; esac; echo "Docker version 28.2.2, build x"'
OLD = 'case "$1" in buildx) exit 1;; esac; echo "Docker version 20.10.24+dfsg1, build x"'


def path_with(folder: Path, *clients: str) -> dict[str, str]:
    """An environment whose PATH has one folder per client, in order."""
    folders = [folder / str(number) for number in range(len(clients))]
    for place, client in zip(folders, clients, strict=True):
        place.mkdir()
        (place / "docker").write_text(f"#!/bin/sh\n{client}\n")
        (place / "docker").chmod(0o755)
    return {"PATH": ":".join(str(place) for place in folders)}


@pytest.mark.parametrize(
    ("clients", "chosen", "kind"),
    [
        ((MODERN, OLD), 1, Kind.BUILDKIT),
        ((MODERN, OLD, BUILDX), 2, Kind.BUILDX),
        ((OLD, OLD), 0, Kind.BUILDKIT),
        ((MODERN,), 0, Kind.CLASSIC),
    ],
)
def test_the_best_client_on_path_builds(
    tmp_path: Path, clients: tuple[str, ...], chosen: int, kind: Kind
) -> None:
    found = find_builder(path_with(tmp_path, *clients))
    assert found == Builder(program=str(tmp_path / str(chosen) / "docker"), kind=kind)


def test_no_client_at_all_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="no docker client"):
        find_builder({"PATH": str(tmp_path)})


def command(kind: Kind) -> list[str]:
    env = {"HTTPS_PROXY": "http://me:secret@proxy"}
    builder = Builder(program="docker", kind=kind)
    return builder.command(plan(), Path("/ctx"), Path("/id"), env=env)


def test_every_kind_gets_the_arguments_and_no_proxy_password() -> None:
    for kind in Kind:
        text = " ".join(command(kind))
        assert "--build-arg BASE_IMAGE=debian:bookworm-slim" in text
        assert "--build-arg HTTPS_PROXY --" in text
        assert "--network host" in text
        assert text.endswith(" /ctx")
        assert "secret" not in text


def test_only_buildx_is_told_to_leave_attestations_out() -> None:
    assert command(Kind.BUILDX)[1:6] == [
        "buildx",
        "build",
        "--load",
        "--provenance=false",
        "--sbom=false",
    ]
    assert command(Kind.BUILDKIT)[1:4] == ["build", "--progress", "plain"]
    assert "--progress" not in command(Kind.CLASSIC)


def test_the_client_is_pointed_at_our_engine() -> None:
    env = {"DOCKER_CONTEXT": "elsewhere", "HOME": "/nonexistent"}
    for kind, buildkit in ((Kind.CLASSIC, "0"), (Kind.BUILDKIT, "1")):
        assert Builder(program="docker", kind=kind).environment(env, engine="unix:///s") == {
            "HOME": "/nonexistent",
            "DOCKER_HOST": "unix:///s",
            "DOCKER_BUILDKIT": buildkit,
        }


def test_the_classic_builder_refuses_mounts(tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM x\nRUN --mount=type=cache,target=/c true\n")
    with pytest.raises(PrerequisiteMissing, match="needs BuildKit"):
        Builder(program="docker", kind=Kind.CLASSIC).refuse_unsupported(dockerfile)
    Builder(program="docker", kind=Kind.BUILDKIT).refuse_unsupported(dockerfile)
