"""Planning the cleanup policy, and what a run over several regions does."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rayfleet.errors import PartialFailure, ToolFailed, Unreachable, UsageError
from rayfleet.fleet.model import Cleanup, Provider
from rayfleet.registry.cleanup import set_cleanup_policies
from rayfleet.registry.client import Place, Repository, artifact_registry_client
from rayfleet.registry.messages import policy_from, policy_message
from rayfleet.registry.plan import Change, CleanupPlan, plan_cleanup
from rayfleet.registry.policy import (
    Action,
    Condition,
    MostRecent,
    Policy,
    TagState,
    desired_policies,
    short_duration,
)
from rayfleet.registry.repositories import ensure_repositories
from rayfleet.registry.uses import Kind, Unknown, Use, Uses
from tests.support.artifact_registry import family, fleet_of, quiet
from tests.support.memory_api import MemoryApi

HERE = Place(project="some-project", region="us-east5", repository="marin")
OURS = desired_policies(Cleanup())
FOREIGN = Policy(
    id="keep-releases",
    action=Action.KEEP,
    rule=Condition(tag_state=TagState.TAGGED, tag_prefixes=("v", "release-")),
)


def found(*policies: Policy, dry_run: bool = False) -> Repository:
    return Repository(place=HERE, policies=policies, policies_dry_run=dry_run)


def plan(wanted: Sequence[Policy], there: Repository | None) -> CleanupPlan:
    return plan_cleanup(HERE, wanted, there, now=datetime.now(UTC))


def test_the_policies_are_named_after_their_values() -> None:
    policies = desired_policies(Cleanup(delete_older_than=timedelta(hours=36), keep_most_recent=3))
    assert [policy.id for policy in policies] == ["delete-older-than-36h", "keep-3"]
    assert short_duration(timedelta(days=30)) == "30d"
    assert short_duration(timedelta(seconds=90)) == "90s"


def test_a_missing_repository_is_created_with_its_policies() -> None:
    assert plan(OURS, None).change is Change.CREATE


def test_equal_policies_need_no_write_whatever_else_is_there() -> None:
    made = plan(OURS, found(OURS[1], FOREIGN, OURS[0]))
    assert made.change is Change.NONE
    assert made.others == (FOREIGN,)


def test_policies_that_only_rehearse_are_made_live() -> None:
    made = plan(OURS, found(*OURS, dry_run=True))
    assert (made.change, made.goes_live) == (Change.SET, True)


def test_an_empty_repository_gets_its_policy_though_somebody_was_not_asked() -> None:
    nobody = Uses(unknown=(Unknown(by="us-east5", why="it has no generated config"),))
    made = plan_cleanup(HERE, OURS, found(), now=datetime.now(UTC), uses=nobody)
    assert (made.change, made.cautious, made.policies) == (Change.SET, False, OURS)


def test_strangers_under_our_names_give_way_and_no_others() -> None:
    stranger = replace(FOREIGN, id="keep-in-use-tags")
    alike = replace(FOREIGN, id="keep-in-use-forever")
    made = plan(OURS, found(*OURS, stranger, alike))
    assert (made.replaced, made.others) == (("keep-in-use-tags",), (alike,))


def test_rules_that_others_left_no_room_for_are_an_error_that_names_them() -> None:
    eight = [replace(FOREIGN, id=f"theirs-{number}") for number in range(8)]
    needs = Uses(known=(Use(by="a head", kind=Kind.NODE, digest=f"sha256:{'1' * 64}"),))
    with pytest.raises(ToolFailed, match="would have 11 cleanup policies") as caught:
        plan_cleanup(HERE, OURS, found(*eight), now=datetime.now(UTC), uses=needs)
    assert "theirs-0" in caught.value.text()
    made = plan_cleanup(HERE, OURS, found(*eight[1:]), now=datetime.now(UTC), uses=needs)
    assert len(made.after) == 10


def test_the_order_of_prefixes_is_no_difference() -> None:
    digests = [f"sha256:{number * 64}" for number in "12"]
    needs = Uses(known=tuple(Use(by="a", kind=Kind.NODE, digest=each) for each in digests))
    turned = Policy(
        id="keep-in-use-1",
        action=Action.KEEP,
        rule=Condition(version_name_prefixes=tuple(reversed(digests))),
    )
    there = found(*OURS, turned)
    made = plan_cleanup(HERE, OURS, there, now=datetime.now(UTC), uses=needs)
    assert made.change is Change.NONE


def test_ours_of_an_older_value_are_replaced_and_foreign_ones_stay() -> None:
    older = desired_policies(Cleanup(delete_older_than=timedelta(days=7), keep_most_recent=4))
    alike = Policy(
        id="keep-9", action=Action.KEEP, rule=MostRecent(keep_count=9, package_name_prefixes=("a",))
    )
    made = plan(OURS, found(*older, FOREIGN, alike))
    assert made.change is Change.SET
    assert made.replaced == ("delete-older-than-7d", "keep-4")
    assert made.others == (FOREIGN, alike)


def test_a_policy_of_our_id_but_another_rule_is_replaced() -> None:
    made = plan(OURS, found(OURS[0], replace(FOREIGN, id="keep-16")))
    assert (made.change, made.replaced, made.others) == (Change.SET, ("keep-16",), ())


def test_an_eleventh_policy_is_refused_and_the_foreign_ones_are_named() -> None:
    nine = [replace(FOREIGN, id=f"theirs-{number}") for number in range(9)]
    assert plan(OURS, found(*nine[:8])).change is Change.SET
    with pytest.raises(ToolFailed, match="theirs-0, theirs-1"):
        plan(OURS, found(*nine))


def test_a_repository_that_cannot_take_our_images_is_refused() -> None:
    with pytest.raises(ToolFailed, match="NPM"):
        plan(OURS, replace(found(), format="NPM"))
    with pytest.raises(ToolFailed, match="immutable"):
        plan(OURS, replace(found(), immutable_tags=True))


@pytest.mark.parametrize(
    "policy",
    [
        *OURS,
        FOREIGN,
        Policy(
            id="all-fields",
            action=Action.DELETE,
            rule=Condition(
                tag_state=TagState.UNTAGGED,
                version_name_prefixes=("sha256:a",),
                package_name_prefixes=("app",),
                older_than=timedelta(seconds=1),
                newer_than=timedelta(days=2),
            ),
        ),
    ],
)
def test_a_policy_survives_the_way_through_its_message(policy: Policy) -> None:
    assert policy_from(policy.id, policy_message(policy)) == policy


def test_one_dead_region_stops_no_other_and_the_exit_code_tells() -> None:
    api = MemoryApi(broken=frozenset({"europe-west4"}))
    fleet = fleet_of(["us-east5", "europe-west4", "us-central2"], api="127.0.0.1:1")
    console = quiet()
    report = set_cleanup_policies(fleet, console=console, uses=Uses(), api=api)
    assert {place.region for place in api.writes} == {"us-east5", "us-central2"}
    with pytest.raises(PartialFailure, match="europe-west4/marin: europe-west4/marin is down"):
        report.raise_failures()
    report.show(console, as_json=True)
    assert isinstance(console.out, io.StringIO)
    changes = {each["region"]: each["change"] for each in json.loads(console.out.getvalue())}
    assert changes == {"us-east5": "create", "europe-west4": "failed", "us-central2": "create"}


def test_a_failure_everywhere_keeps_its_kind() -> None:
    api = MemoryApi(broken=frozenset({"us-east5"}))
    fleet = fleet_of(["us-east5"], api="127.0.0.1:1")
    with pytest.raises(Unreachable):
        set_cleanup_policies(fleet, console=quiet(), uses=Uses(), api=api).raise_failures()
    with pytest.raises(Unreachable):
        ensure_repositories(fleet, family(), console=quiet(), api=api)


def test_a_dry_run_writes_nothing_and_region_narrows() -> None:
    api = MemoryApi()
    fleet = fleet_of(["us-east5", "us-central2"], api="127.0.0.1:1")
    report = set_cleanup_policies(
        fleet, console=quiet(), uses=Uses(), api=api, regions=["us-central2"], dry_run=True
    )
    assert [each.place.region for each in report.outcomes] == ["us-central2"]
    assert api.writes == []
    with pytest.raises(UsageError, match="us-west1"):
        set_cleanup_policies(fleet, console=quiet(), uses=Uses(), api=api, regions=["us-west1"])


def test_policies_that_do_not_read_back_are_an_error() -> None:
    api = MemoryApi({HERE: found()}, forgetful=True)
    report = set_cleanup_policies(
        fleet_of(["us-east5"], api="127.0.0.1:1"), console=quiet(), uses=Uses(), api=api
    )
    with pytest.raises(ToolFailed, match="read back differently"):
        report.raise_failures()


def test_every_repository_of_the_fleet_gets_the_policy_once() -> None:
    families = [family(), family("vllm"), family("other", repository="vllm")]
    api = MemoryApi()
    set_cleanup_policies(
        fleet_of(["us-east5"], api="127.0.0.1:1", families=families),
        console=quiet(),
        uses=Uses(),
        api=api,
    )
    assert sorted(place.repository for place in api.writes) == ["marin", "vllm"]


def test_a_sandbox_that_is_down_never_means_google() -> None:
    with pytest.raises(Unreachable, match="sandbox is not up"):
        artifact_registry_client(fleet_of(["us-east5"]))


def test_a_machine_without_google_credentials_hears_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rayfleet.errors import PrerequisiteMissing

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(PrerequisiteMissing, match="gcloud auth application-default login"):
        artifact_registry_client(fleet_of(["us-east5"], provider=Provider.GCP))
