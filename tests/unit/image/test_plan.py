"""What a publish plans: tags, labels, and what it refuses."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import date

import pytest

from rayfleet.console import Console
from rayfleet.errors import UsageError
from rayfleet.fleet.model import ImageFamily
from rayfleet.image.build.checkout import Revision
from rayfleet.image.plan import BuildPlan, Selection, plan_build, refuse_changed, refuse_dirty

COMMIT = "3f2a1bc" + "0" * 33


def plan(*changed: str, family: str = "cluster") -> BuildPlan:
    image = ImageFamily(
        family=family,
        name="marin_cluster",
        repository="marin",
        dockerfile="docker/Dockerfile.cluster",
        context=("docker",),
        base_image="debian:bookworm-slim",
    )
    return plan_build(
        image,
        Revision(commit=COMMIT, short="3f2a1bc", changed=changed),
        files=("docker/Dockerfile.cluster",),
        today=date(2026, 11, 20),
        destinations={"us-east5": "host/p/marin/marin_cluster"},
    )


def test_a_clean_build_is_tagged_commit_date_and_latest() -> None:
    assert plan().tags == ("3f2a1bc", "20261120", "latest")
    assert plan().pin_tag == "3f2a1bc"


def test_a_dirty_build_says_so_in_its_tags() -> None:
    assert plan("docker/x").tags == ("3f2a1bc-dirty", "20261120-dirty", "latest")


def test_uncommitted_changes_are_named_and_refused() -> None:
    with pytest.raises(UsageError) as refused:
        refuse_dirty(plan("docker/x", "docker/y", family="vllm"), allow=False)
    assert "docker/x" in refused.value.text()
    assert "invoke cluster-docker --image vllm --allow-dirty" in refused.value.text()
    refuse_dirty(plan("docker/x"), allow=True)
    refuse_dirty(plan(), allow=False)


def test_a_long_list_of_changes_is_cut() -> None:
    with pytest.raises(UsageError, match="and 5 more"):
        refuse_dirty(plan(*(f"f{number:02}" for number in range(25))), allow=False)


def test_a_checkout_that_stayed_what_it_was_is_built() -> None:
    here = Revision(commit=COMMIT, short="3f2a1bc")
    refuse_changed(plan(), here, ())
    # Edits of what is uncommitted anyway are what was allowed.
    refuse_changed(plan("x"), replace(here, changed=("x",)), ("x",))


@pytest.mark.parametrize(
    ("commit", "changed", "copied", "words"),
    [
        ("f" * 40, (), (), "fffffff is checked out now, and not"),
        (COMMIT, ("docker/hello",), (), "docker/hello"),
        (COMMIT, (), ("docker/hello",), "docker/hello"),
    ],
)
def test_a_checkout_that_changed_while_it_was_copied_is_refused(
    commit: str, changed: tuple[str, ...], copied: tuple[str, ...], words: str
) -> None:
    now = Revision(commit=commit, short=commit[:7], changed=changed)
    with pytest.raises(UsageError, match="changed while its files were copied") as refused:
        refuse_changed(plan(), now, copied, command="invoke image.build")
    assert words in refused.value.why
    assert refused.value.next_step == "invoke image.build"


def test_the_command_that_was_refused_is_the_one_proposed() -> None:
    with pytest.raises(UsageError, match=r"invoke image\.build --image vllm --allow-dirty"):
        refuse_dirty(plan("x"), allow=False, command="invoke image.build --image vllm")


def test_what_was_built_is_published_under_the_plans_tags() -> None:
    chosen = Selection.of_build(plan(), "sha256:1", command="invoke image.publish")
    assert (chosen.name, chosen.wanted) == ("rayfleet/marin_cluster:3f2a1bc", "sha256:1")
    assert (chosen.tags, chosen.pin_tag, chosen.commit) == (plan().tags, "3f2a1bc", COMMIT)
    assert chosen.missing == "invoke image.build"
    unpinned = Selection.of_build(plan(), "sha256:1", command="invoke image.publish", pin=False)
    assert (unpinned.pin_tag, unpinned.command) == ("", "invoke image.publish --no-pin")


@pytest.mark.parametrize(
    ("tags", "pin", "pinned"),
    [(["v1"], True, "v1"), (["latest", "v1", "v2", "v1"], True, "v1"), (["latest"], False, "")],
)
def test_the_first_tag_that_stays_is_pinned(tags: list[str], pin: bool, pinned: str) -> None:
    chosen = Selection.of_name("debian:12", tags, family="vllm", pin=pin)
    assert (chosen.name, chosen.pin_tag) == ("debian:12", pinned)
    assert chosen.tags == tuple(dict.fromkeys(tags))
    assert chosen.command.startswith("invoke image.publish --image vllm --ref debian:12 --tag ")
    assert chosen.command.endswith("--no-pin") == (not pin)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ([], "under no tag"),
        (["v1", "a b"], "'a b' is no tag"),
        (["x" * 129], "is no tag"),
        (["latest"], "cannot be pinned"),
    ],
)
def test_tags_that_make_no_sense_are_refused(tags: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        Selection.of_name("debian:12", tags, family="cluster", pin=True)
    assert "invoke image.publish --ref debian:12" in refused.value.next_step


def test_the_build_gets_the_commit_and_one_date() -> None:
    assert plan().arguments() == {
        "BASE_IMAGE": "debian:bookworm-slim",
        "IMAGE_TAG": "3f2a1bc",
        "IMAGE_COMMIT": COMMIT,
        "IMAGE_DATE": "2026-11-20",
    }
    assert plan().labels()["org.opencontainers.image.created"] == "2026-11-20T00:00:00Z"
    assert plan().labels()["org.opencontainers.image.revision"] == COMMIT
    assert plan().labels()["org.opencontainers.image.base.name"] == "debian:bookworm-slim"


def test_the_plan_prints_as_text_and_as_json() -> None:
    text, document = (shown(as_json=flag) for flag in (False, True))
    assert "3f2a1bc, 20261120, latest" in text
    assert "host/p/marin/marin_cluster" in text
    assert json.loads(document)["destinations"] == {"us-east5": "host/p/marin/marin_cluster"}


def shown(*, as_json: bool) -> str:
    out = io.StringIO()
    plan().show(Console(out=out, err=io.StringIO()), as_json=as_json)
    return out.getvalue()
