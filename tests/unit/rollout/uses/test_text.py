"""Images of a fleet in a text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayfleet.fleet.model import Fleet
from rayfleet.registry.uses import Kind
from rayfleet.rollout.uses.text import digests_in, images_in
from tests.support.artifact_registry import fleet_of

DIGEST = f"sha256:{'a1' * 32}"
HOST = "us-east5-docker.pkg.dev"
NAME = "some-project/marin/marin_cluster"


@pytest.fixture
def fleet() -> Fleet:
    plain = fleet_of(["us-east5"], api="127.0.0.1:1")
    return replace(plain, registries=replace(plain.registries, hosts={"us-east5": HOST}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{HOST}/{NAME}:v1@{DIGEST}", (DIGEST, "", "us-east5", "marin_cluster")),
        (f'image: "{HOST}/{NAME}:4554f82"', ("", "4554f82", "us-east5", "marin_cluster")),
        (f"docker run {HOST}/{NAME} --x", ("", "latest", "us-east5", "marin_cluster")),
        (f'["{HOST}/{NAME}@{DIGEST}"]', (DIGEST, "", "us-east5", "marin_cluster")),
        (f"{{image: {HOST}/{NAME}:v1, shm: 1}}", ("", "v1", "us-east5", "marin_cluster")),
        (f"127.0.0.1:5001/{NAME}:v1", ("", "v1", "here", "marin_cluster")),
        (f"{HOST}/some-project/marin/a/b-c:v1.2", ("", "v1.2", "us-east5", "a/b-c")),
    ],
)
def test_a_reference_is_read_as_a_registry_reads_it(
    fleet: Fleet, text: str, found: tuple[str, ...]
) -> None:
    (use,) = images_in(fleet, text, by="it", kind=Kind.CONFIG, region="here")
    assert (use.digest, use.tag, use.region, use.package) == found
    assert use.repository == "marin"


@pytest.mark.parametrize(
    "text",
    [
        "debian:bookworm-slim",
        f"{HOST}/other-project/marin/marin_cluster:v1",
        f"{HOST}/some-project/other/marin_cluster:v1",
        "projects/some-project/global/images/family/ubuntu",
    ],
)
def test_images_of_others_are_none_of_ours(fleet: Fleet, text: str) -> None:
    assert list(images_in(fleet, text, by="it", kind=Kind.CONFIG)) == []


def test_bare_digests_are_of_any_image() -> None:
    (use,) = digests_in(f"{DIGEST} {DIGEST} sha256:abc", by="it", kind=Kind.ROLLOUT)
    assert (use.digest, use.package, use.repository, use.region) == (DIGEST, "", "", "")
