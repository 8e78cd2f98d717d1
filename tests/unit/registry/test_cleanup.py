"""Planning the cleanup policy, and what a run over several regions does."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, ToolFailed, Unreachable, UsageError
from rayfleet.fleet.model import Cleanup, Provider
from rayfleet.registry.cleanup import Change, plan_cleanup, set_cleanup_policies
from rayfleet.registry.client import Place, Repository, artifact_registry_client
from rayfleet.registry.messages import policy_from, policy_message
from rayfleet.registry.policy import (
    Action,
    Condition,
    MostRecent,
    Policy,
    TagState,
    Version,
    desired_policies,
    short_duration,
)
from rayfleet.registry.repositories import ensure_repositories
from tests.support.artifact_registry import family, fleet_of

HERE = Place(project="some-project", region="us-east5", repository="marin")
OURS = desired_policies(Cleanup())
FOREIGN = Policy(
    id="keep-releases",
    action=Action.KEEP,
    rule=Condition(tag_state=TagState.TAGGED, tag_prefixes=("v", "release-")),
)


def found(*policies: Policy, dry_run: bool = False) -> Repository:
    return Repository(place=HERE, policies=policies, policies_dry_run=dry_run)


@dataclass
class MemoryApi:
    """An Artifact Registry in memory; ``broken`` regions do not answer."""

    repositories: dict[Place, Repository] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    writes: list[Place] = field(default_factory=list)
    forgetful: bool = False

    def read(self, place: Place) -> Repository | None:
        if place.region in self.broken:
            raise Unreachable(f"{place} is down")
        return self.repositories.get(place)

    def create(self, place: Place, policies: Sequence[Policy] = ()) -> bool:
        self.writes.append(place)
        self.repositories[place] = Repository(place=place, policies=tuple(policies))
        return True

    def set_policies(
        self, place: Place, policies: Sequence[Policy], *, replaced: Sequence[str] = ()
    ) -> None:
        self.writes.append(place)
        kept = {each.id: each for each in self.repositories[place].policies}
        after = {**kept, **{each.id: each for each in policies}}
        left = [each for key, each in after.items() if key not in replaced or each in policies]
        if not self.forgetful:
            self.repositories[place] = Repository(place=place, policies=tuple(left))

    def versions(self, place: Place) -> tuple[Version, ...]:
        return ()


def quiet() -> Console:
    return Console(out=io.StringIO(), err=io.StringIO())


def test_the_policies_are_named_after_their_values() -> None:
    policies = desired_policies(Cleanup(delete_older_than=timedelta(hours=36), keep_most_recent=3))
    assert [policy.id for policy in policies] == ["delete-older-than-36h", "keep-3"]
    assert short_duration(timedelta(days=30)) == "30d"
    assert short_duration(timedelta(seconds=90)) == "90s"


def test_a_missing_repository_is_created_with_its_policies() -> None:
    assert plan_cleanup(HERE, OURS, None).change is Change.CREATE


def test_equal_policies_need_no_write_whatever_else_is_there() -> None:
    plan = plan_cleanup(HERE, OURS, found(OURS[1], FOREIGN, OURS[0]))
    assert plan.change is Change.NONE
    assert plan.foreign == (FOREIGN,)


def test_policies_that_only_rehearse_are_made_live() -> None:
    plan = plan_cleanup(HERE, OURS, found(*OURS, dry_run=True))
    assert (plan.change, plan.goes_live) == (Change.SET, True)


def test_ours_of_an_older_value_are_replaced_and_foreign_ones_stay() -> None:
    older = desired_policies(Cleanup(delete_older_than=timedelta(days=7), keep_most_recent=4))
    alike = Policy(
        id="keep-9", action=Action.KEEP, rule=MostRecent(keep_count=9, package_name_prefixes=("a",))
    )
    plan = plan_cleanup(HERE, OURS, found(*older, FOREIGN, alike))
    assert plan.change is Change.SET
    assert plan.replaced == ("delete-older-than-7d", "keep-4")
    assert plan.foreign == (FOREIGN, alike)


def test_a_policy_of_our_id_but_another_rule_is_replaced() -> None:
    plan = plan_cleanup(HERE, OURS, found(OURS[0], replace(FOREIGN, id="keep-16")))
    assert (plan.change, plan.replaced, plan.foreign) == (Change.SET, ("keep-16",), ())


def test_an_eleventh_policy_is_refused_and_the_foreign_ones_are_named() -> None:
    nine = [replace(FOREIGN, id=f"theirs-{number}") for number in range(9)]
    assert plan_cleanup(HERE, OURS, found(*nine[:8])).change is Change.SET
    with pytest.raises(ToolFailed, match="theirs-0, theirs-1"):
        plan_cleanup(HERE, OURS, found(*nine))


def test_a_repository_that_cannot_take_our_images_is_refused() -> None:
    with pytest.raises(ToolFailed, match="NPM"):
        plan_cleanup(HERE, OURS, replace(found(), format="NPM"))
    with pytest.raises(ToolFailed, match="immutable"):
        plan_cleanup(HERE, OURS, replace(found(), immutable_tags=True))


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
    report = set_cleanup_policies(fleet, console=console, api=api)
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
        set_cleanup_policies(fleet, console=quiet(), api=api).raise_failures()
    with pytest.raises(Unreachable):
        ensure_repositories(fleet, family(), console=quiet(), api=api)


def test_a_dry_run_writes_nothing_and_region_narrows() -> None:
    api = MemoryApi()
    fleet = fleet_of(["us-east5", "us-central2"], api="127.0.0.1:1")
    report = set_cleanup_policies(
        fleet, console=quiet(), api=api, regions=["us-central2"], dry_run=True
    )
    assert [each.place.region for each in report.outcomes] == ["us-central2"]
    assert api.writes == []
    with pytest.raises(UsageError, match="us-west1"):
        set_cleanup_policies(fleet, console=quiet(), api=api, regions=["us-west1"])


def test_policies_that_do_not_read_back_are_an_error() -> None:
    api = MemoryApi({HERE: found()}, forgetful=True)
    report = set_cleanup_policies(
        fleet_of(["us-east5"], api="127.0.0.1:1"), console=quiet(), api=api
    )
    with pytest.raises(ToolFailed, match="read back differently"):
        report.raise_failures()


def test_every_repository_of_the_fleet_gets_the_policy_once() -> None:
    families = [family(), family("vllm"), family("other", repository="vllm")]
    api = MemoryApi()
    set_cleanup_policies(
        fleet_of(["us-east5"], api="127.0.0.1:1", families=families), console=quiet(), api=api
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
