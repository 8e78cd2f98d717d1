"""The steps of a rotation: what is added, what configs name, when the old one ends."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.auth.begin import begin, ensure_token
from rayfleet.auth.check import Checked
from rayfleet.auth.rotate import add_version, end_old
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, UsageError
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet
from rayfleet.fleet.token_versions import read_versions, versions_file, write_version
from rayfleet.project import Project
from rayfleet.secret.store import FileSecret

ROOT = Path(__file__).resolve().parents[3]
NAME = "RAY_AUTH_TOKEN"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=ROOT, fleet_file=ROOT / "infra" / "sandbox.yaml", state=tmp_path)


@pytest.fixture
def fleet(project: Project) -> Fleet:
    return load_fleet(project.fleet_file, root=ROOT, state=project.state, look=False)


@pytest.fixture
def secret(project: Project) -> FileSecret:
    return FileSecret(project.state / "sandbox" / "secrets" / NAME)


def quiet() -> Console:
    return Console(out=io.StringIO(), err=io.StringIO())


def taking(*versions: str, problem: str = "", strangers: tuple[str, ...] = ()) -> Checked:
    return Checked(
        cluster="us-east5",
        mode="token",
        secret=NAME,
        wanted="2",
        takes=versions,
        open=strangers,
        problem=problem,
    )


def test_a_first_token_is_made_once_and_named(
    project: Project, fleet: Fleet, secret: FileSecret
) -> None:
    for _ in range(2):
        begin(project, fleet, list(fleet.clusters.values()), quiet())
    staging = FileSecret(secret.folder.with_name(f"{NAME}_STAGING"))
    assert (secret.enabled(), staging.enabled()) == (("1",), ("1",))
    assert read_versions(fleet) == {NAME: "1", f"{NAME}_STAGING": "1"}
    assert len(secret.read("1")) == 64
    assert secret.read("1") != staging.read("1")
    assert (secret.folder / "1").stat().st_mode & 0o777 == 0o600
    assert secret.folder.stat().st_mode & 0o777 == 0o700
    assert secret.read("1") not in versions_file(fleet).read_text()


def test_a_dry_run_makes_no_token_and_names_none(
    project: Project, fleet: Fleet, secret: FileSecret
) -> None:
    clusters = list(fleet.clusters.values())
    console = quiet()
    begin(project, fleet, clusters, console, dry_run=True)
    told = console.out.getvalue()  # type: ignore[attr-defined]
    assert f"{NAME}: would make a new version, which configs would name, for " in told
    assert (secret.enabled(), read_versions(fleet)) == ((), {})
    assert not secret.folder.exists()
    secret.add("one")
    begin(project, fleet, clusters, console, dry_run=True)
    assert f"{NAME}: version 1 is there, which configs would name" in console.out.getvalue()  # type: ignore[attr-defined]
    assert read_versions(fleet) == {}
    begin(project, fleet, clusters, quiet())
    begin(project, fleet, clusters, console, dry_run=True)
    assert f"{NAME}: version 1 is there, and configs name it" in console.out.getvalue()  # type: ignore[attr-defined]


def test_versions_go_on_after_those_that_ended(secret: FileSecret) -> None:
    assert [secret.add("one"), secret.add("two")] == ["1", "2"]
    secret.disable("2")
    assert secret.enabled() == ("1",)
    assert secret.add("three") == "3"
    assert (secret.enabled(), secret.read("3")) == (("3", "1"), "three")


def test_a_rotation_that_was_cut_short_goes_on_with_its_version(
    fleet: Fleet, secret: FileSecret
) -> None:
    ensure_token(fleet, secret)
    assert add_version(fleet, secret, quiet()) == "2"
    assert add_version(fleet, secret, quiet()) == "2"
    write_version(fleet, NAME, "1")  # as if it had been killed before it was named
    assert add_version(fleet, secret, quiet()) == "2"
    assert (secret.enabled(), read_versions(fleet)) == (("2", "1"), {NAME: "2"})


def test_without_named_versions_nothing_is_rotated(fleet: Fleet, secret: FileSecret) -> None:
    secret.add("one")
    with pytest.raises(UsageError, match="no config names a version"):
        add_version(fleet, secret, quiet())
    assert (secret.enabled(), read_versions(fleet)) == (("1",), {NAME: "1"})


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (taking("1"), "it still takes version 1"),
        (taking("2", "1"), "it takes version 2, 1"),
        (taking(), "it takes no enabled version"),
        (taking("2", strangers=("a wrong token",)), "it lets in a wrong token"),
        (taking(problem="no head answers"), "no head answers"),
        (replace(taking(), headless=True), "it has no head any more"),
    ],
)
def test_the_old_token_stays_while_any_cluster_is_not_through(
    secret: FileSecret, late: Checked, why: str
) -> None:
    secret.add("one")
    secret.add("two")
    well = replace(taking("2"), cluster="us-central2")
    with pytest.raises(PartialFailure, match="the old token stays, because of us-east5") as error:
        end_old(secret, "2", [well, late], quiet(), "invoke auth.rotate --all")
    assert why in error.value.why
    assert secret.enabled() == ("2", "1")


def test_the_old_token_ends_when_all_are_through(secret: FileSecret) -> None:
    secret.add("one")
    secret.add("two")
    end_old(secret, "2", [taking("2")], quiet(), "invoke auth.rotate --all")
    assert secret.enabled() == ("2",)


@pytest.mark.parametrize("text", ["- a", "X: 1", 'X: "latest"', "{"])
def test_a_file_of_versions_that_is_broken_is_named(fleet: Fleet, text: str) -> None:
    versions_file(fleet).parent.mkdir(parents=True, exist_ok=True)
    versions_file(fleet).write_text(text)
    with pytest.raises(UsageError, match=r"tokens\.lock\.yaml is broken"):
        read_versions(fleet)
