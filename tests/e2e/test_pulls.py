"""What rayfleet publishes is pulled and run, from every registry, by docker, podman and skopeo."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from rayfleet.console import Console
from rayfleet.fleet.model import Compression
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.publish.publication import Publication
from rayfleet.image.publish.standalone import publish_image
from tests.support.registry import LocalRegistry
from tests.support.registry_walk import Walk, sha256
from tests.support.runnable_image import SAYS, runnable_image

REGIONS = ("us-central2", "europe-west4", "us-east5")
REPOSITORY = "test-project/marin/pulled"
TAG = "c0ffee1"
SECONDS = 120
# moby#41759
FIRST_WITH_ZSTD = 23


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """An image of the engine and the registries that it was published to.

    ``original`` is what the engine said of the image before it was removed; ``podman_home`` a
    folder with the configuration of a podman of the tests' own.
    """

    original: dict[str, Any]
    history: list[dict[str, Any]]
    published: dict[Compression, Publication]
    registries: dict[str, LocalRegistry]
    podman_home: Path

    def reference(self, region: str, compression: Compression) -> str:
        return f"{self.registries[region].host}/{REPOSITORY}-{compression.value}:{TAG}"

    @property
    def authfile(self) -> Path:
        """The passwords of all registries, as all three programs read them."""
        return self.podman_home / "auth.json"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    folder = tmp_path_factory.mktemp("pulls")
    registries = {region: LocalRegistry(folder=folder / region) for region in REGIONS}
    try:
        for registry in registries.values():
            registry.start()
        with (
            runnable_image() as name,
            closing(DockerClient.from_env()) as client,
            # podman wants a short path.
            tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp") as home,
        ):
            image = client.images.get(name)
            original, history = image.attrs, image.history()
            published = {each: publish(name, registries, each, folder) for each in Compression}
            write_podman_home(Path(home), registries)
            yield Shelf(
                original=original,
                history=history,
                published=published,
                registries=registries,
                podman_home=Path(home),
            )
    finally:
        for registry in registries.values():
            registry.stop()


def publish(
    name: str, registries: dict[str, LocalRegistry], compression: Compression, folder: Path
) -> Publication:
    logins = {
        each.host: Credentials(username=each.username, password=each.password)
        for each in registries.values()
    }
    published = publish_image(
        name,
        {
            region: f"{each.host}/{REPOSITORY}-{compression.value}"
            for region, each in registries.items()
        },
        (TAG, "latest"),
        state=folder / "state",
        login=logins.get,
        compression=compression,
        console=Console(out=io.StringIO(), err=io.StringIO()),
    )
    published.require(next_step="look at the error above")
    return published


def write_podman_home(home: Path, registries: dict[str, LocalRegistry]) -> None:
    """A podman of our own: nothing of it meets a podman that the machine may have in use."""
    engine = {
        "lock_type": "file",
        "tmp_dir": str(home / "tmp"),
        "events_logger": "none",
        "cgroup_manager": "cgroupfs",
        # crun refuses machines that have both versions of cgroups.
        "runtime": "runc",
        "image_copy_tmp_dir": str(home),
    }
    # A container's default limits may be above what this machine lets anybody have. All that
    # root runs counts as processes, every thread of a sandbox too.
    limits = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=16384:16384"]\n'
    lines = "".join(f'{name} = "{value}"\n' for name, value in engine.items())
    (home / "containers.conf").write_text(f"{limits}[engine]\n{lines}")
    (home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    auths = {
        each.host: {"auth": base64.b64encode(f"{each.username}:{each.password}".encode()).decode()}
        for each in registries.values()
    }
    authfile = home / "auth.json"
    authfile.touch(mode=0o600)
    authfile.write_text(json.dumps({"auths": auths}))


def run(shelf: Shelf, *command: str | Path) -> str:
    """Run a program in the tests' own configuration and return what it prints."""
    home = shelf.podman_home
    env = {
        **os.environ,
        "CONTAINERS_CONF": str(home / "containers.conf"),
        "REGISTRY_AUTH_FILE": str(shelf.authfile),
        "HOME": str(home),
        "TMPDIR": str(home),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def podman(shelf: Shelf, *arguments: str) -> str:
    home = shelf.podman_home
    return run(
        shelf, "podman", "--root", home / "root", "--runroot", home / "run",
        "--storage-driver", "vfs", *arguments,
    )  # fmt: skip


def skopeo(shelf: Shelf, verb: str, *arguments: str) -> str:
    return run(shelf, "skopeo", "--policy", shelf.podman_home / "policy.json", verb, *arguments)


EVERYWHERE = pytest.mark.parametrize("region", REGIONS)
EVERY_WAY = pytest.mark.parametrize("compression", Compression, ids=str)


@EVERY_WAY
@EVERYWHERE
def test_docker_pulls_and_runs_the_very_image_that_was_built(
    shelf: Shelf, region: str, compression: Compression
) -> None:
    registry = shelf.registries[region]
    reference = shelf.reference(region, compression)
    with closing(DockerClient.from_env()) as client:
        version = client.version()["Version"]
        forget(client, shelf)
        login = {"username": registry.username, "password": registry.password}
        if compression is Compression.ZSTD and int(version.split(".")[0]) < FIRST_WITH_ZSTD:
            # What the README says of such an engine, and all that can be tried with one.
            *_, last = client.api.pull(reference, auth_config=login, stream=True, decode=True)
            assert "tar header" in last["error"]
            return
        try:
            pulled = client.images.pull(reference, auth_config=login)
            assert f"@{shelf.published[compression].digest}" in pulled.attrs["RepoDigests"][0]
            assert pulled.id == shelf.original["Id"]
            for kept in ("RootFS", "Config", "Created", "Architecture", "Os", "Author"):
                assert pulled.attrs[kept] == shelf.original[kept], kept
            assert what_was_done(pulled.history()) == what_was_done(shelf.history)
            said = client.containers.run(reference, remove=True, network_mode="none")
            assert said.decode().strip() == SAYS
        finally:
            client.images.remove(reference, force=True)


def forget(client: DockerClient, shelf: Shelf) -> None:
    """Take the image out of the engine, so that it has to come from the registry."""
    # Not client.images.list(), which fails when another test removes an image meanwhile.
    if any(each["Id"] == shelf.original["Id"] for each in client.api.images()):
        client.images.remove(shelf.original["Id"], force=True)
    assert shelf.original["Id"] not in {each["Id"] for each in client.api.images()}


def what_was_done(history: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each["Created"], each["CreatedBy"], each["Size"], each["Comment"]) for each in history]


@EVERY_WAY
@EVERYWHERE
def test_podman_pulls_and_runs_it(shelf: Shelf, region: str, compression: Compression) -> None:
    reference = shelf.reference(region, compression)
    podman(shelf, "pull", "--quiet", "--tls-verify=false", reference)
    try:
        (pulled,) = json.loads(podman(shelf, "image", "inspect", reference))
        assert f"sha256:{pulled['Id']}" == shelf.original["Id"]
        assert pulled["Digest"] == shelf.published[compression].digest
        assert pulled["RootFS"]["Layers"] == shelf.original["RootFS"]["Layers"]
        assert pulled["Config"]["Labels"] == shelf.original["Config"]["Labels"]
        assert pulled["Created"] == shelf.original["Created"]
        said = podman(shelf, "run", "--rm", "--network", "none", reference)
        assert said.strip() == SAYS
    finally:
        podman(shelf, "rmi", "--force", reference)


@EVERY_WAY
@EVERYWHERE
def test_skopeo_reads_it_and_copies_it_byte_for_byte(
    shelf: Shelf, region: str, compression: Compression, tmp_path: Path
) -> None:
    reference = f"docker://{shelf.reference(region, compression)}"
    published = shelf.published[compression]
    seen = json.loads(skopeo(shelf, "inspect", "--tls-verify=false", reference))
    assert seen["Digest"] == published.digest
    assert set(seen["RepoTags"]) == {TAG, "latest"}
    assert seen["Created"] == shelf.original["Created"]
    assert seen["Labels"] == shelf.original["Config"]["Labels"]
    config = skopeo(shelf, "inspect", "--config", "--raw", "--tls-verify=false", reference)
    assert sha256(config.encode()) == shelf.original["Id"]

    skopeo(shelf, "copy", "--quiet", "--src-tls-verify=false", reference, f"dir:{tmp_path}/dir")
    manifest = (tmp_path / "dir" / "manifest.json").read_bytes()
    assert sha256(manifest) == published.digest
    blobs = [each for each in (tmp_path / "dir").iterdir() if len(each.name) == 64]
    assert len(blobs) == len(set(shelf.original["RootFS"]["Layers"])) + 1
    for blob in blobs:
        assert sha256(blob.read_bytes()) == f"sha256:{blob.name}"

    layout = f"oci:{tmp_path}/oci:{TAG}"
    skopeo(shelf, "copy", "--quiet", "--src-tls-verify=false", reference, layout)
    (entry,) = json.loads((tmp_path / "oci" / "index.json").read_text())["manifests"]
    assert entry["digest"] == published.digest


@EVERY_WAY
def test_every_registry_holds_the_engines_own_layers(
    shelf: Shelf, compression: Compression
) -> None:
    layers = shelf.original["RootFS"]["Layers"]
    assert len(set(layers)) < len(layers)  # one comes twice
    for registry in shelf.registries.values():
        held = Walk(registry, f"{REPOSITORY}-{compression.value}").tags()
        assert {each.digest for each in held.values()} == {shelf.published[compression].digest}
        assert sha256(held[TAG].config) == shelf.original["Id"]
        assert list(held[TAG].diff_ids) == layers
        named = json.loads(held[TAG].manifest)["layers"]
        assert {each["mediaType"].rpartition("+")[2] for each in named} == {compression.value}
