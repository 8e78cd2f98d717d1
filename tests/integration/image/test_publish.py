"""Publishing through the real engine to real registries."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import urllib3
from docker import DockerClient
from filelock import FileLock

from rayfleet.console import Console
from rayfleet.errors import (
    Locked,
    PartialFailure,
    PrerequisiteMissing,
    ToolFailed,
    Unreachable,
    UsageError,
)
from rayfleet.fleet.pins import read_pins
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.credentials import credentials_for
from rayfleet.image.plan import Selection
from tests.support.depth import series
from tests.support.publishing import Site, commit, engine_names, forget_images

pytestmark = pytest.mark.integration

PUBLISHER = """
import pickle, sys
from rayfleet.console import Console
from rayfleet.image.pipeline import Pipeline
project, fleet = pickle.load(open(sys.argv[1], "rb"))
Pipeline(
    project=project,
    fleet=fleet,
    console=Console(),
    ensure_repositories=lambda *_: None,
    protect_pin=lambda *_: None,
).release()
"""
PHASES = ("check", "build", "repositories", "publish", "verify")


@pytest.fixture
def console() -> Console:
    return Console(out=io.StringIO(), err=io.StringIO())


def narrated(console: Console) -> str:
    assert isinstance(console.err, io.StringIO)
    return console.err.getvalue()


def client(site: Site, region: str) -> RegistryClient:
    host = site.registries[region].host
    return RegistryClient(host, credentials_for(host, site.fleet))


def digests(site: Site) -> set[str | None]:
    """The digests behind every tag in every region."""
    return {
        client(site, region).manifest_digest(site.repository, tag)
        for region in site.registries
        for tag in client(site, region).tags(site.repository)
    }


def labels(site: Site, tag: str = "latest") -> Mapping[str, str]:
    """What the image behind a tag says of itself; nothing if it has no label."""
    registry = client(site, "us-east5")
    manifest = registry.manifest(site.repository, tag)
    return registry.config(site.repository, manifest.config_digest).labels


def pinned_digest(site: Site) -> str:
    return read_pins(site.fleet.outputs.pins)["cluster"].digest


def test_every_region_gets_the_same_digest_under_three_tags(site: Site, console: Console) -> None:
    published = site.publish(console)

    assert digests(site) == {published.digest}
    for region in site.registries:
        assert set(client(site, region).tags(site.repository)) == set(published.tags)
    pin = read_pins(site.fleet.outputs.pins)["cluster"]
    assert (pin.tag, pin.digest) == (published.commit[:7], published.digest)
    assert tuple(published.seconds) == PHASES
    assert published.publication.seconds.keys() == {"prepare", "upload", "tags", "verify"}


def test_the_image_says_what_it_was_built_from(site: Site, console: Console) -> None:
    published = site.publish(console)

    said = labels(site)
    assert said["org.opencontainers.image.revision"] == published.commit
    assert said["org.opencontainers.image.version"] == published.tag
    assert said["test.tag"] == published.tag


def test_only_the_local_names_stay_in_the_engine(site: Site, console: Console) -> None:
    published = site.publish(console)

    local = f"rayfleet/{site.name}"
    assert engine_names(site) == [site.base_image, f"{local}:{published.tag}", f"{local}:latest"]
    assert not any((site.project.state / "build").iterdir())


def test_a_second_publish_changes_nothing(site: Site, console: Console) -> None:
    first = site.publish(console)
    pins = site.fleet.outputs.pins.read_bytes()
    second = site.publish(console)

    assert second.digest == first.digest
    assert not second.pinned
    assert site.fleet.outputs.pins.read_bytes() == pins


def test_a_registry_that_dies_on_the_way_leaves_the_pin_and_a_rerun_completes(
    site: Site, console: Console
) -> None:
    site.publish(console)
    pins = site.fleet.outputs.pins.read_bytes()
    (site.project.root / "docker" / "hello").write_text("again\n")
    new = commit(site.project.root, "Second")[:7]
    dying = site.registries["europe-west4"]

    with pytest.raises(PartialFailure) as failure:
        site.publish(console, ensure_repositories=lambda *_: dying.stop())

    assert failure.value.exit_code == 2
    assert "europe-west4  failed" in failure.value.text()
    assert "connection refused" in failure.value.text().lower()
    for region in ("us-central2", "us-east5"):
        assert new in client(site, region).tags(site.repository)
    assert site.fleet.outputs.pins.read_bytes() == pins

    dying.start()
    published = site.publish(console)
    assert published.tag == new
    assert read_pins(site.fleet.outputs.pins)["cluster"].digest == published.digest
    assert client(site, "europe-west4").manifest_digest(site.repository, new) == published.digest


def test_a_dead_registry_is_found_before_the_build(site: Site, console: Console) -> None:
    site.registries["us-east5"].stop()

    with pytest.raises(Unreachable) as failure:
        site.publish(console)

    assert failure.value.exit_code == 4
    assert "us-east5" in failure.value.text()
    assert engine_names(site) == [site.base_image]
    assert not site.fleet.outputs.pins.exists()


def test_a_refused_password_is_reported_in_the_registrys_words_and_never_shown(
    site: Site, console: Console
) -> None:
    site.write_passwords(us_east5="wrong-and-secret")

    with pytest.raises(ToolFailed) as failure:
        site.publish(console)

    text = failure.value.text() + narrated(console)
    assert "UNAUTHORIZED" in text
    assert "1 of 3 registries" in text
    assert "wrong-and-secret" not in text
    assert engine_names(site) == [site.base_image]


def test_no_password_is_narrated_or_logged(site: Site, console: Console) -> None:
    site.publish(console)

    log = site.project.logs("build-cluster").read_text()
    for registry in site.registries.values():
        assert registry.password not in narrated(console) + log


def test_a_password_that_changes_on_the_way_is_reported(site: Site, console: Console) -> None:
    registry = site.registries["us-east5"]

    def change_password(*_: object) -> None:
        registry.stop()
        registry.password = "another-and-secret"
        registry.start()

    with pytest.raises(PartialFailure) as failure:
        site.publish(console, ensure_repositories=change_password)

    assert "us-east5      failed" in failure.value.text()
    assert "UNAUTHORIZED" in failure.value.text()
    assert "secret" not in failure.value.text() + narrated(console)
    assert not site.fleet.outputs.pins.exists()


def test_a_password_that_was_renewed_on_the_way_is_used(site: Site, console: Console) -> None:
    registry = site.registries["us-east5"]

    def renew_password(*_: object) -> None:
        registry.stop()
        registry.password = "renewed"
        registry.start()
        site.write_passwords()

    published = site.publish(console, ensure_repositories=renew_password)
    assert digests(site) == {published.digest}


def test_a_tag_that_somebody_moved_is_set_again(site: Site, console: Console) -> None:
    published = site.publish(console)
    move_tag(site, "us-east5", "latest")

    again = site.publish(console)

    assert digests(site) == {published.digest}
    result = {each.region: each.tags_set for each in again.publication.regions}
    assert result == {"us-central2": (), "europe-west4": (), "us-east5": ("latest",)}


def move_tag(site: Site, region: str, tag: str) -> str:
    """Put another manifest, of the same blobs, under ``tag`` and return its digest."""
    registry = site.registries[region]
    manifest = client(site, region).manifest(site.repository, tag)
    response = urllib3.request(
        "PUT",
        f"http://{registry.host}/v2/{site.repository}/manifests/{tag}",
        body=json.dumps(json.loads(manifest.raw)).encode(),
        headers={
            "Content-Type": manifest.media_type,
            **urllib3.make_headers(basic_auth=f"{registry.username}:{registry.password}"),
        },
    )
    assert response.status == 201, response.data
    return response.headers["Docker-Content-Digest"]


@pytest.mark.parametrize(
    "moment",
    series(
        (
            "us-east5: 3 of 3 blobs sent",
            "us-east5: tagged latest",
            "build: started",
            "publish: started",
            "us-east5: tagged",
            "verify: started",
        ),
        few=2,
    ),
)
def test_a_rerun_after_kill_9_reaches_the_same_end(
    site: Site, console: Console, tmp_path: Path, moment: str
) -> None:
    kill_publisher(site, tmp_path, moment)
    assert not site.fleet.outputs.pins.exists()

    published = site.publish(console)

    assert digests(site) == {published.digest}
    assert read_pins(site.fleet.outputs.pins)["cluster"].digest == published.digest
    local = f"rayfleet/{site.name}"
    assert engine_names(site) == [site.base_image, f"{local}:{published.tag}", f"{local}:latest"]
    assert not any((site.project.state / "build").iterdir())


def kill_publisher(site: Site, folder: Path, moment: str) -> None:
    """Publish in another process and kill it when it narrates ``moment``."""
    arguments = folder / "publisher.pickle"
    arguments.write_bytes(pickle.dumps((site.project, site.fleet)))
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(arguments)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        seen = next((line for line in process.stderr if moment in line), None)
        process.kill()
        assert seen is not None, "the publisher ended before that"
    assert process.returncode == -signal.SIGKILL


def test_uncommitted_changes_are_refused_unless_asked_for(site: Site, console: Console) -> None:
    (site.project.root / "docker" / "new").write_text("new\n")

    with pytest.raises(UsageError) as refused:
        site.publish(console)
    assert "docker/new" in refused.value.text()
    assert engine_names(site) == [site.base_image]

    published = site.publish(console, allow_dirty=True)
    assert [tag.endswith("-dirty") for tag in published.tags] == [True, True, False]
    assert read_pins(site.fleet.outputs.pins)["cluster"].tag == published.tag


class Meddling(io.StringIO):
    """A narration whose reader does something when the build begins, which is after git was
    asked and before the files are copied."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._meddle = meddle

    def write(self, text: str) -> int:
        if text.startswith("build: started"):
            self._meddle()
        return super().write(text)


def edit(root: Path) -> None:
    (root / "docker" / "hello").write_text("edited\n")


def add(root: Path) -> None:
    (root / "docker" / "new").write_text("new\n")


def edit_the_fleet(root: Path) -> None:
    (root / "fleet.yaml").write_text("project: another\n")


def check_out(root: Path) -> None:
    edit(root)
    commit(root, "Second")


@pytest.mark.parametrize("meddle", [edit, add, edit_the_fleet, check_out])
@pytest.mark.parametrize("allow_dirty", [False, True])
def test_a_checkout_that_changes_before_it_is_copied_is_not_built(
    site: Site, meddle: Callable[[Path], None], allow_dirty: bool
) -> None:
    console = Console(out=io.StringIO(), err=Meddling(lambda: meddle(site.project.root)))

    with pytest.raises(UsageError, match="changed while") as refused:
        site.publish(console, allow_dirty=allow_dirty)

    assert refused.value.next_step.startswith("invoke cluster-docker")
    assert engine_names(site) == [site.base_image]
    assert digests(site) == set()
    assert not any((site.project.state / "build").iterdir())


def test_a_fleet_file_that_is_not_committed_makes_the_build_dirty(
    site: Site, console: Console
) -> None:
    edit_the_fleet(site.project.root)

    with pytest.raises(UsageError, match=r"fleet\.yaml"):
        site.publish(console)

    assert site.publish(console, allow_dirty=True).tag.endswith("-dirty")


def test_a_failed_build_shows_its_last_lines_and_publishes_nothing(
    site: Site, console: Console
) -> None:
    (site.project.root / "docker" / "Dockerfile").write_text("FROM scratch\nCOPY docker/no /no\n")
    commit(site.project.root, "Broken")

    with pytest.raises(ToolFailed) as failure:
        site.publish(console)

    assert "docker/no" in failure.value.text()
    assert digests(site) == set()


def test_two_publishers_exclude_each_other(site: Site, console: Console) -> None:
    folder = site.project.state / "locks"
    folder.mkdir(parents=True)
    with FileLock(folder / "publish-cluster.lock"), pytest.raises(Locked) as locked:
        site.publish(console)
    assert locked.value.exit_code == 5


def test_no_engine_is_said_before_anything_happens(
    site: Site, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
        with pytest.raises(PrerequisiteMissing) as missing:
            site.publish(console)
    assert "tcp://127.0.0.1:1" in missing.value.what
    assert "refused" in missing.value.why
    assert missing.value.next_step == "invoke sandbox.up"


def test_no_base_image_is_said_before_anything_happens(site: Site, console: Console) -> None:
    forget_images(site)
    with pytest.raises(PrerequisiteMissing) as missing:
        site.publish(console)
    assert site.base_image in missing.value.what
    assert missing.value.next_step == "invoke sandbox.up"


def test_what_was_built_can_be_published_later(site: Site, console: Console) -> None:
    built = site.pipeline(console).build()
    assert engine_names(site) == [site.base_image, *sorted(built.names)]
    assert digests(site) == set()

    pipeline = site.pipeline(console)
    published = pipeline.publish(pipeline.selection(name="", tags=[], pin=True))
    published.require()

    assert digests(site) == {published.digest}
    pin = read_pins(site.fleet.outputs.pins)["cluster"]
    assert (pin.tag, pin.digest, pin.commit) == (published.tag, published.digest, built.commit)
    assert tuple(published.seconds) == ("check", "repositories", "publish", "verify")


def take_names(site: Site, *names: str) -> None:
    """Give another image the names, as another checkout's build on the same engine does."""
    with closing(DockerClient.from_env()) as engine:
        for name in names:
            engine.images.get(site.base_image).tag(name)


def test_another_checkout_that_builds_meanwhile_is_not_published(
    site: Site, console: Console
) -> None:
    name = f"rayfleet/{site.name}"
    commit_tag = site.pipeline(console).plan().pin_tag

    published = site.publish(
        console,
        ensure_repositories=lambda *_: take_names(site, f"{name}:{commit_tag}", f"{name}:latest"),
    )

    assert labels(site)["test.tag"] == published.tag
    assert digests(site) == {published.digest} == {pinned_digest(site)}


def test_another_checkout_that_built_since_is_not_published(site: Site, console: Console) -> None:
    built = site.pipeline(console).build()
    take_names(site, *built.names)

    pipeline = site.pipeline(console)
    published = pipeline.publish(pipeline.selection(name="", tags=[], pin=True))
    published.require()

    assert labels(site)["test.tag"] == published.tag
    assert digests(site) == {published.digest} == {pinned_digest(site)}


def test_an_image_that_only_another_checkout_built_is_not_published(
    site: Site, console: Console
) -> None:
    take_names(site, f"rayfleet/{site.name}:{site.pipeline(console).plan().pin_tag}")
    pipeline = site.pipeline(console)
    with pytest.raises(PrerequisiteMissing, match="has not built"):
        pipeline.publish(pipeline.selection(name="", tags=[], pin=True))
    assert digests(site) == set()


def test_a_name_that_moves_while_it_is_published_stays_what_it_was(
    site: Site, console: Console
) -> None:
    mine = site.pipeline(console).build().names[1]
    pipeline = site.pipeline(console, ensure_repositories=lambda *_: take_names(site, mine))
    pipeline.publish(pipeline.selection(name=mine, tags=["v1"], pin=False)).require()
    assert labels(site, "v1")["test.tag"]


def test_what_was_not_built_cannot_be_published(site: Site, console: Console) -> None:
    pipeline = site.pipeline(console)
    selection = pipeline.selection(name="", tags=[], pin=True)
    with pytest.raises(PrerequisiteMissing) as missing:
        pipeline.publish(selection)
    assert f"rayfleet/{site.name}" in missing.value.what
    assert missing.value.next_step == "invoke image.build"


@pytest.mark.parametrize("pin", [True, False])
def test_any_image_of_the_engine_can_be_published(site: Site, console: Console, pin: bool) -> None:
    pipeline = site.pipeline(console)
    selection = pipeline.selection(name=site.base_image, tags=["base-1", "latest"], pin=pin)
    published = pipeline.publish(selection)
    published.require()

    assert digests(site) == {published.digest}
    assert client(site, "us-east5").tags(site.repository) == ("base-1", "latest")
    assert published.pinned == pin == site.fleet.outputs.pins.exists()
    assert engine_names(site) == [site.base_image]


def test_a_failed_publish_prints_its_result_as_json_and_the_error_apart(
    site: Site, console: Console
) -> None:
    dying = site.registries["europe-west4"]
    published = site.pipeline(console, ensure_repositories=lambda *_: dying.stop()).release()

    with pytest.raises(PartialFailure) as failure:
        published.conclude(console, as_json=True)

    assert isinstance(console.out, io.StringIO)
    result = json.loads(console.out.getvalue())
    assert (result["complete"], result["pinned"]) == (False, False)
    assert "refused" in result["regions"]["europe-west4"]["error"]
    assert result["regions"]["us-east5"]["error"] is None
    assert result["regions"]["us-east5"]["bytes_sent"] == result["size"]
    assert result["seconds"].keys() > {"build", "prepare", "upload", "tags", "verify"}
    assert failure.value.next_step.startswith("mend the cause, then run: invoke cluster-docker")


def test_a_plan_says_what_each_region_lacks_and_changes_nothing(
    site: Site, console: Console
) -> None:
    plan = site.pipeline(console).plan()
    selection = Selection.of_build(plan, "", command=plan.command)

    unbuilt = site.pipeline(console).survey(selection, built=False)
    assert (unbuilt.unknown, unbuilt.digest) == (None, "")

    site.pipeline(console).build()
    selection = site.pipeline(console).selection(name="", tags=[], pin=True)
    built = site.pipeline(console).survey(selection)
    assert built.unknown == 2
    assert [each.tags for each in built.regions] == [plan.tags] * 3
    assert digests(site) == set()

    published = site.publish(console)
    site.registries["us-east5"].stop()
    after = site.pipeline(console).survey(selection)
    assert (after.unknown, after.digest) == (0, published.digest)
    assert [(each.tags, each.size) for each in after.regions] == [((), 0)] * 3
    assert [each.error is None for each in after.regions] == [True, True, False]
    with pytest.raises(PartialFailure):
        after.conclude(console, as_json=False)


def test_the_plan_of_a_publish_counts_what_is_known(site: Site, console: Console) -> None:
    site.publish(console)
    other = site.registries["us-east5"]
    other.stop()
    shutil.rmtree(other.folder / "store")
    other.start()

    site.pipeline(console).show_plan(as_json=True)

    assert isinstance(console.out, io.StringIO)
    plan = json.loads(console.out.getvalue())
    assert plan["layers_not_compressed"] == 0
    assert plan["regions"]["us-central2"]["tags_missing"] == []
    assert plan["regions"]["us-east5"]["tags_missing"] == plan["tags"]
    assert plan["regions"]["us-east5"]["blobs_missing"] == 3
    assert plan["regions"]["us-east5"]["bytes_missing"] > 0
