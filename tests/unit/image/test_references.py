"""What an operator types for an image, and what is said when it makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Fleet, ImageFamily, Outputs, Pin, Registries, RolloutPolicy
from rayfleet.fleet.pins import write_pin
from rayfleet.image.references import Reference, find_destination, find_reference

ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


def fleet_of(folder: Path) -> Fleet:
    """A fleet with the images cluster and vllm, whose pins lie in ``folder``."""
    images = {
        family: ImageFamily(
            family=family,
            name=f"marin_{family}",
            repository="marin",
            dockerfile="Dockerfile",
            context=("docker",),
        )
        for family in ("cluster", "vllm")
    }
    return Fleet(
        project="my-project",
        source=folder / "fleet.yaml",
        images=images,
        registries=Registries(regions=("us-east5",), hosts={"us-east5": "registry.example"}),
        clusters={},
        rollout=RolloutPolicy(),
        outputs=Outputs(pins=folder / "images.lock.yaml", configs=folder / "clusters"),
    )


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return fleet_of(tmp_path)


@pytest.mark.parametrize(
    ("typed", "family", "tag", "digest"),
    [
        ("20251209", "cluster", "20251209", ""),
        ("latest", "cluster", "latest", ""),
        (ONE, "cluster", "", ONE),
        ("vllm:20251209", "vllm", "20251209", ""),
        (f"vllm@{ONE}", "vllm", "", ONE),
        (f"vllm:20251209@{ONE}", "vllm", "20251209", ONE),
        ("cluster:cluster", "cluster", "cluster", ""),
        ("  vllm:x ", "vllm", "x", ""),
        ("us-docker.pkg.dev/my-project/marin/marin_vllm:x", "vllm", "x", ""),
        (f"127.0.0.1:5000/my-project/marin/marin_cluster:x@{ONE}", "cluster", "x", ONE),
        (f"127.0.0.1:5000/my-project/marin/marin_cluster@{ONE}", "cluster", "", ONE),
    ],
)
def test_every_form_is_understood(
    fleet: Fleet, typed: str, family: str, tag: str, digest: str
) -> None:
    assert find_reference(typed, fleet) == Reference(family=family, tag=tag, digest=digest)


def test_a_name_without_a_family_is_one_of_the_family_that_was_chosen(fleet: Fleet) -> None:
    assert find_reference("x", fleet, family="vllm") == Reference(family="vllm", tag="x")
    assert find_reference(ONE, fleet, family="vllm") == Reference(family="vllm", digest=ONE)
    assert find_reference("cluster:x", fleet, family="vllm").family == "cluster"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", "it is empty"),
        ("a b", "'a b' is no tag"),
        ("-x", "'-x' is no tag"),
        ("x" * 129, "is no tag"),
        ("cluster:", "no tag after the colon"),
        ("sha256:", "a digest is sha256: and 64 hexadecimal digits"),
        ("sha256:123", "a digest is sha256: and 64 hexadecimal digits"),
        (f"sha256:{'g' * 64}", "a digest is sha256: and 64 hexadecimal digits"),
        (f"{ONE}0", "a digest is sha256: and 64 hexadecimal digits"),
        ("cluster@md5:123", "a digest is sha256: and 64 hexadecimal digits"),
        ("cluster@", "a digest is sha256: and 64 hexadecimal digits"),
    ],
)
def test_nonsense_is_refused_with_the_forms_that_there_are(
    fleet: Fleet, typed: str, expected: str
) -> None:
    with pytest.raises(UsageError) as refused:
        find_reference(typed, fleet)
    assert expected in refused.value.what
    assert "FAMILY:TAG" in refused.value.why


@pytest.mark.parametrize(
    "typed", ["vlm:x", f"vlm@{ONE}", "other.example/my-project/marin/marin_other:x", "a/b:c", ":x"]
)
def test_an_unknown_image_is_refused_with_those_that_there_are(fleet: Fleet, typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_reference(typed, fleet)
    assert refused.value.why == "its images are cluster, vllm"


def test_pins_are_known_by_name(fleet: Fleet) -> None:
    for tag, digest in (("one", ONE), ("two", TWO)):
        write_pin(fleet.outputs.pins, "vllm", Pin(tag=tag, digest=digest))
    current = Reference(family="vllm", tag="two", digest=TWO)
    assert find_reference("vllm", fleet) == current
    assert find_reference("vllm:current", fleet) == current
    assert find_reference("current", fleet, family="vllm") == current
    assert find_reference("vllm:previous", fleet) == Reference(family="vllm", tag="one", digest=ONE)


def test_a_pin_that_there_is_not_is_said(fleet: Fleet) -> None:
    with pytest.raises(UsageError, match="'cluster' has no current pin"):
        find_reference("current", fleet)
    write_pin(fleet.outputs.pins, "cluster", Pin(tag="one", digest=ONE))
    with pytest.raises(UsageError, match="'cluster' has no previous pin") as refused:
        find_reference("previous", fleet)
    assert refused.value.next_step == "invoke image.history --image cluster"


def test_a_shortened_digest_is_completed(fleet: Fleet) -> None:
    asked = []

    def known(family: str) -> tuple[str, ...]:
        asked.append(family)
        return (ONE, TWO, ONE)

    found = find_reference("vllm@sha256:1111111", fleet, known=known)
    assert found == Reference(family="vllm", digest=ONE)
    assert find_reference(TWO, fleet, known=known).digest == TWO
    assert asked == ["vllm"]


def test_a_shortened_digest_must_mean_one(fleet: Fleet) -> None:
    for known, expected in (((), "no known digests"), ((ONE, ONE[:-1] + "2"), "2 known digests")):
        with pytest.raises(UsageError, match=expected):
            find_reference("sha256:1111111", fleet, known=lambda _, known=known: known)


TAGS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", fullmatch=True)


@given(tag=TAGS.filter(lambda tag: tag not in {"current", "previous"}))
def test_every_tag_of_a_family_comes_back_as_it_was(tag: str) -> None:
    assert str(find_reference(f"vllm:{tag}", fleet_of(Path("nowhere")))) == f"vllm:{tag}"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("new", Reference(family="vllm", tag="new")),
        ("cluster:new", Reference(family="cluster", tag="new")),
        ("cluster", Reference(family="cluster", tag="old")),
    ],
)
def test_a_destination_is_a_tag_or_a_family(fleet: Fleet, typed: str, expected: Reference) -> None:
    assert find_destination(typed, fleet, Reference(family="vllm", tag="old")) == expected


@pytest.mark.parametrize("typed", [ONE, f"cluster@{ONE}", "current", "cluster:previous"])
def test_a_destination_is_nothing_else(fleet: Fleet, typed: str) -> None:
    with pytest.raises(UsageError, match="cannot be given the name"):
        find_destination(typed, fleet, Reference(family="vllm", tag="old"))


def test_a_family_takes_over_a_tag_only_if_there_is_one(fleet: Fleet) -> None:
    with pytest.raises(UsageError) as refused:
        find_destination("cluster", fleet, Reference(family="vllm", digest=ONE))
    assert refused.value.next_step == "name a tag: --to cluster:TAG"
