"""What is printed of a publish: a table, JSON, and one line for each region that failed."""

from __future__ import annotations

import io
import json

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable
from rayfleet.image.build.built import BuiltImage
from rayfleet.image.layers.collect import LocalImage
from rayfleet.image.publish.publication import Publication, RegionResult
from rayfleet.image.publish.published import Published

DIGEST = f"sha256:{'a' * 64}"
DOWN = Unreachable("registry h2 does not answer", why="connection\n  refused")


def publication(error: RayfleetError | None = None) -> Publication:
    return Publication(
        image="rayfleet/i:3f2a1bc",
        digest=DIGEST,
        tags=("3f2a1bc", "latest"),
        regions=(
            RegionResult(
                region="us-east5",
                destination="h1/p/r/i",
                sent=254_000_000,
                present=88_000_000,
                blobs_sent=3,
                blobs_present=2,
                tags_set=("3f2a1bc", "latest"),
            ),
            RegionResult(
                region="europe-west4",
                destination="h2/p/r/i",
                sent=0,
                present=0,
                blobs_sent=0,
                blobs_present=0,
                error=error,
            ),
        ),
        size=342_000_000,
        compressed=500_000_000,
        source="store",
        revision="abc",
        seconds={"prepare": 1.23456, "upload": 2.0, "tags": 0.1, "verify": 0.05},
    )


def published(error: RayfleetError | None = None) -> Published:
    return Published(
        family="cluster",
        tag="3f2a1bc",
        commit="abc",
        pinned=error is None,
        seconds={"check": 0.1, "publish": 3.4},
        publication=publication(error),
        command="invoke cluster-docker",
    )


def shown(console: Console) -> str:
    assert isinstance(console.out, io.StringIO)
    return console.out.getvalue()


@pytest.fixture
def console() -> Console:
    return Console(out=io.StringIO(), err=io.StringIO())


def test_a_failed_region_is_one_line_and_the_run_names_the_next_command() -> None:
    with pytest.raises(PartialFailure) as failure:
        published(DOWN).require()
    assert failure.value.exit_code == 2
    assert failure.value.text().splitlines() == [
        "error: the image did not reach every region (1 of 2 failed); nothing was pinned: ",
        f"  us-east5      holds {DIGEST}",
        "  europe-west4  failed: registry h2 does not answer: connection refused",
        "  next: mend the cause, then run: invoke cluster-docker (it does what is missing)",
    ]


def test_a_complete_publish_is_a_table(console: Console) -> None:
    published().conclude(console, as_json=False)
    row = next(line for line in shown(console).splitlines() if line.startswith("us-east5"))
    assert row.split() == ["us-east5", "h1/p/r/i", "254", "MB", "88", "MB", "verified"]


def test_json_has_bytes_digests_and_seconds_of_success_and_failure(console: Console) -> None:
    with pytest.raises(PartialFailure):
        published(DOWN).conclude(console, as_json=True)
    result = json.loads(shown(console))
    assert result["digest"] == DIGEST
    assert (result["complete"], result["pinned"]) == (False, False)
    assert (result["bytes_sent"], result["bytes_saved"]) == (254_000_000, 88_000_000)
    assert result["bytes_compressed"] == 500_000_000
    assert result["regions"]["us-east5"]["tags_set"] == ["3f2a1bc", "latest"]
    assert result["regions"]["us-east5"]["error"] is None
    assert result["regions"]["europe-west4"]["error"].endswith("connection refused")
    assert result["seconds"] == {
        "check": 0.1,
        "publish": 3.4,
        "prepare": 1.235,
        "upload": 2.0,
        "tags": 0.1,
        "verify": 0.05,
    }


def test_a_build_prints_what_is_in_the_engine(console: Console) -> None:
    built = BuiltImage(
        family="cluster",
        image=LocalImage(
            id=DIGEST, diff_ids=(), size=663_000_000, architecture="amd64", os="linux"
        ),
        names=("a:1", "a:latest"),
        commit="abc",
        seconds=12.34,
    )
    built.show(console, as_json=False)
    assert DIGEST in shown(console)
    assert "a:1, a:latest" in shown(console)
    assert "663 MB" in shown(console)
    assert isinstance(console.out, io.StringIO)
    console.out.truncate(0)
    console.out.seek(0)
    built.show(console, as_json=True)
    assert json.loads(shown(console))["image_id"] == DIGEST
