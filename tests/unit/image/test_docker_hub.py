"""Docker Hub: where its login stands, and where its API is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing
from rayfleet.image.oci.docker_hub import HubLogin, hub_login, read_env
from rayfleet.image.oci.http import Http
from rayfleet.image.oci.patience import Retries

SECRET = "hunter2 = '#secret"


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").touch()
    (tmp_path / "infra").mkdir()
    return tmp_path / "infra" / "fleet.yaml"


def write(fleet_file: Path, text: str, mode: int = 0o600) -> Path:
    path = fleet_file.parents[1] / ".env"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_environment_goes_before_the_file(fleet_file: Path) -> None:
    write(fleet_file, "DOCKERHUB_USERNAME=file\nDOCKERHUB_PASSWORD=of-the-file\n")
    both = {"DOCKERHUB_USERNAME": "me", "DOCKERHUB_PASSWORD": SECRET}
    found = hub_login(fleet_file, both)
    assert found == HubLogin(
        username="me", password=SECRET, where="DOCKERHUB_USERNAME of the environment"
    )
    assert SECRET not in repr(found)
    half = hub_login(fleet_file, {"DOCKERHUB_USERNAME": "me"})
    assert half is not None
    assert half.username == "file"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=b", "b"),
        ("export A=b # c", "b # c"),
        ("  A = b  ", "b"),
        ("A='b c'", "b c"),
        ('A="b=c"', "b=c"),
        ("A={{username}}", ""),
        ("A=", ""),
        ("# A=b\nA=c", "c"),
    ],
)
def test_lines_of_the_file(fleet_file: Path, text: str, value: str) -> None:
    assert read_env(write(fleet_file, f"\n{text}\nnonsense\n"))["A"] == value


def test_a_file_that_others_may_read_is_pointed_at(fleet_file: Path) -> None:
    lines = "DOCKERHUB_USERNAME=me\nDOCKERHUB_PASSWORD=x\n"
    path = write(fleet_file, lines, mode=0o640)
    found = hub_login(fleet_file, {})
    assert found is not None
    assert found.remark == f"others may read it; chmod 600 {path}"
    path.chmod(0o600)
    found = hub_login(fleet_file, {})
    assert found is not None
    assert found.remark == ""


def test_no_file_is_no_login_and_a_damaged_one_is_quoted_by_nobody(fleet_file: Path) -> None:
    assert hub_login(fleet_file, {}) is None
    path = write(fleet_file, "")
    path.write_bytes(b"DOCKERHUB_PASSWORD=hunter2\xff")
    with pytest.raises(PrerequisiteMissing) as told:
        hub_login(fleet_file, {})
    assert "hunter2" not in told.value.text()


@pytest.mark.parametrize("name", ["docker.io", "index.docker.io", "registry-1.docker.io"])
def test_the_api_of_docker_hub_has_a_host_of_its_own(name: str) -> None:
    http = Http(name, retries=Retries())
    assert http.url("/v2/") == "https://registry-1.docker.io/v2/"
    assert http.url(f"https://{name}/v2/x") == "https://registry-1.docker.io/v2/x"
    assert http.is_ours(http.url("/v2/"))
