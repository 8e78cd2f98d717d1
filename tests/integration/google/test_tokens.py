"""Tokens and keys in Secret Manager, by what operators run."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.auth.begin import ensure_token
from rayfleet.auth.keys import PRIVATE, PUBLIC, fetch_keys
from rayfleet.auth.rotate import add_version, end_old, plan_rotation
from rayfleet.console import Console
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet
from rayfleet.fleet.token_versions import read_versions
from rayfleet.project import Project
from rayfleet.secret.store import GoogleSecret
from rayfleet.secret.tokens import credential_of
from tests.support.google import PROJECT, Google
from tests.support.leftovers import Littered

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
ACCESS = "secretmanager.projects.secrets.versions.access"
NAME = "RAY_AUTH_TOKEN"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    text = (ROOT / "infra" / "fleet.yaml").read_text()
    text = text.replace("~/.ssh/", f"{tmp_path}/keys/").replace("infra/", f"{tmp_path}/infra/")
    (tmp_path / "fleet.yaml").write_text(text)
    return Project(root=ROOT, fleet_file=tmp_path / "fleet.yaml", state=tmp_path / "state")


@pytest.fixture
def fleet(project: Project) -> Fleet:
    return load_fleet(project.fleet_file, root=ROOT, state=project.state)


def quiet() -> Console:
    return Console(out=io.StringIO(), err=io.StringIO())


def test_a_secret_lives_from_its_making_to_the_end_of_its_old_version(
    google: Google, fleet: Fleet
) -> None:
    secret = GoogleSecret(PROJECT, NAME)
    assert secret.enabled() == ()
    assert ensure_token(fleet, secret) == ("1", True)
    assert ensure_token(fleet, secret) == ("1", False)
    first = secret.read("1")
    assert add_version(fleet, secret, quiet()) == "2"
    assert (secret.enabled(), read_versions(fleet)) == (("2", "1"), {NAME: "2"})
    assert secret.read("2") != first
    end_old(secret, "2", [], quiet(), "invoke auth.rotate --all")
    assert secret.enabled() == ("2",)
    with pytest.raises(ToolFailed, match="cannot read version 1 of the secret RAY_AUTH_TOKEN"):
        secret.read("1")
    assert first not in repr(google.seen())


def test_clusters_have_the_tokens_of_their_own_secrets(
    google: Google, project: Project, fleet: Fleet
) -> None:
    for name in (NAME, "RAY_AUTH_TOKEN_STAGING"):
        GoogleSecret(PROJECT, name).add(f"the-{name}")
    found = {}
    for name in ("us-east5", "us-central2-staging", "us-central2-vllm"):
        credential = credential_of(project, fleet, fleet.clusters[name])
        found[name] = credential and credential.current()
    assert found == {
        "us-east5": "the-RAY_AUTH_TOKEN",
        "us-central2-staging": "the-RAY_AUTH_TOKEN_STAGING",
        "us-central2-vllm": None,
    }


def test_what_google_refuses_names_the_role_and_what_passes_is_waited_for(google: Google) -> None:
    secret = GoogleSecret(PROJECT, NAME)
    secret.add("one")
    google.inject(ACCESS, status=503, times=1)
    assert secret.read("1") == "one"
    google.inject(ACCESS, status=403, times=1)
    with pytest.raises(ToolFailed) as refused:
        secret.read("1")
    assert "--role=roles/secretmanager.secretAccessor" in refused.value.next_step


def test_a_folder_that_somebody_else_made_is_left_as_it_is(
    google: Google, fleet: Fleet, tmp_path: Path
) -> None:
    GoogleSecret(PROJECT, PRIVATE).add("a key")
    GoogleSecret(PROJECT, PUBLIC).add("its public half")
    (tmp_path / "keys").mkdir(mode=0o755)
    key = tmp_path / "keys" / "marin_ray_cluster.pem"
    console = quiet()
    fetch_keys(fleet, console, dry_run=True)
    told = console.out.getvalue()  # type: ignore[attr-defined]
    assert f"would write {key}: {PRIVATE}, version 1\n" in told
    assert not list(key.parent.iterdir())
    fetch_keys(fleet, quiet())
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o755)


def test_the_plan_of_a_rotation_changes_nothing(google: Google, tmp_path: Path) -> None:
    littered = Littered(google=google, folder=tmp_path)
    outputs = replace(littered.fleet.outputs, pins=tmp_path / "images.lock.yaml")
    outputs.pins.write_text(littered.fleet.outputs.pins.read_text())
    fleet = replace(littered.fleet, outputs=outputs)
    head = "ray-marin-us-central2-head-00000001-compute"
    littered.machine(head, "RUNNING", owner="marin-us-central2")
    secret = GoogleSecret(PROJECT, NAME)
    ensure_token(fleet, secret)
    console, chosen = quiet(), [fleet.clusters["us-central2"]]
    plan_rotation(littered.project, fleet, chosen, console)
    told = console.out.getvalue()  # type: ignore[attr-defined]
    assert "RAY_AUTH_TOKEN: would add a version\n" in told
    assert "RAY_AUTH_TOKEN: would restart us-central2, in stages\n" in told
    assert "would change the configs only of us-central2-compress, big-run, us-central1, " in told
    assert "RAY_AUTH_TOKEN: would disable version 1 once no head takes it\n" in told
    secret.add("two")
    plan_rotation(littered.project, fleet, chosen, console)
    assert "would go on with version 2\n" in console.out.getvalue()  # type: ignore[attr-defined]
    assert (secret.enabled(), read_versions(fleet)) == (("2", "1"), {NAME: "1"})


def test_the_key_pair_goes_where_the_fleet_file_wants_it(
    google: Google, fleet: Fleet, tmp_path: Path
) -> None:
    with pytest.raises(ToolFailed, match="the secret RAY_CLUSTER_PRIVATE_KEY has no version"):
        fetch_keys(fleet, quiet())
    text = "-----BEGIN KEY-----\nabc\n-----END KEY-----\n"
    GoogleSecret(PROJECT, PRIVATE).add(text)
    GoogleSecret(PROJECT, PUBLIC).add("ssh-ed25519 AAAA us")
    for _ in range(2):
        fetch_keys(fleet, quiet())
    key = tmp_path / "keys" / "marin_ray_cluster.pem"
    assert key.read_text() == text
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert key.with_suffix(".pub").read_text() == "ssh-ed25519 AAAA us\n"
    key.write_text("somebody else's")
    with pytest.raises(UsageError, match="is another key"):
        fetch_keys(fleet, quiet())
    assert key.read_text() == "somebody else's"
    assert base64.b64encode(text.encode()).decode() not in repr(google.seen())
