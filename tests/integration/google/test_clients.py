"""Clients of Google's APIs are kept, for as long as they lead to the same place."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.auth.exceptions import DefaultCredentialsError

from rayfleet.emulator.account import write_account
from rayfleet.google_api import CREDENTIALS, OVERRIDE, service
from tests.support.google import PROJECT, Google

pytestmark = pytest.mark.integration


def test_a_client_is_made_once(google: Google) -> None:
    assert service("tpu", "v2") is service("tpu", "v2")
    assert service("tpu", "v2").projects() is service("tpu", "v2").projects()
    assert service("tpu", "v2") is not service("tpu", "v2alpha1")


def test_other_credentials_or_another_address_get_a_client_of_their_own(
    google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = service("tpu", "v2")
    account = tmp_path / "account.json"
    write_account(account, google.url, PROJECT)
    monkeypatch.setenv(CREDENTIALS, str(account))
    second = service("tpu", "v2")
    assert second is not first
    write_account(account, google.url, "another-project")  # the same file, with other content
    assert service("tpu", "v2") is not second
    third = service("tpu", "v2")
    monkeypatch.setenv(f"{OVERRIDE}TPU", f"{google.url}/elsewhere/")
    assert service("tpu", "v2") is not third


def test_a_client_that_could_not_be_made_is_made_later(
    google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account.json"
    monkeypatch.setenv(CREDENTIALS, str(account))
    with pytest.raises(DefaultCredentialsError):
        service("compute", "v1")
    write_account(account, google.url, PROJECT)
    where = {"project": PROJECT, "zone": "us-central2-b"}
    assert "items" not in service("compute", "v1").instances().list(**where).execute()


def test_what_is_asked_of_the_last_cloud_is_not_in_the_next(google: Google) -> None:
    assert google.seen() == []
    assert google.states("nodes") == {}
