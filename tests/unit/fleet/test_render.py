"""Rendered configs: the facts that they carry, and that Ray takes them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from rayfleet.errors import PrerequisiteMissing, ToolFailed, UsageError
from rayfleet.fleet.configs import plan_update
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.render import check_config, checked_configs, render_configs
from rayfleet.fleet.token_versions import write_version
from rayfleet.process import run
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.unit.fleet.conftest import REPOSITORY, SANDBOX_EDITS, Place

DIGEST = f"sha256:{'a' * 64}"
PINS = {"cluster": Pin(tag="20260101", digest=DIGEST)}


@pytest.fixture(scope="module")
def production() -> Fleet:
    """The fleet that ships."""
    return load_fleet(
        REPOSITORY / "infra" / "fleet.yaml", root=REPOSITORY, state=REPOSITORY / "no-state"
    )


def committed(fleet: Fleet, name: str) -> dict[str, Any]:
    loaded = read_yaml(fleet.config_path(fleet.clusters[name]).read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_committed_configs_are_what_the_fleet_file_says(production: Fleet) -> None:
    update = plan_update(production, root=REPOSITORY)
    assert update.lines == ()
    assert len(update.files) == 17


def test_every_committed_config_passes_rays_own_validation(production: Fleet) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    for cluster in production.clusters.values():
        config = committed(production, cluster.name)
        prepared = prepare_config(config)
        validate_config(prepared)
        # Ray merges its defaults in; what we say must survive that.
        for key in ("head_start_ray_commands", "worker_start_ray_commands"):
            assert prepared[key] == config[key]
        assert set(prepared["available_node_types"]) == set(config["available_node_types"])


@pytest.mark.parametrize("name", ["us-central2-staging", "eu-west4-vllm"])
def test_every_command_is_one_that_bash_can_read(production: Fleet, name: str) -> None:
    config = committed(production, name)
    commands = [text for key in config if key.endswith("_commands") for text in config[key]]
    assert len(commands) > 15
    checked = run(["bash", "-n", "-c", "\n".join(commands)], timeout=10)
    assert checked.ok, checked.tail


def test_a_node_copies_the_secrets_that_there_are(production: Fleet, tmp_path: Path) -> None:
    home, secrets = tmp_path / "home", tmp_path / "secrets"
    for folder in (home, secrets):
        folder.mkdir()
    for secret in ("RAY_AUTH_TOKEN", "RAY_CLUSTER_PUBLIC_KEY", "HF_TOKEN"):
        (secrets / secret).write_text(f"the {secret}")
    (secrets / "OPENAI_API_KEY").touch()
    for command in committed(production, "us-east5")["setup_commands"]:
        text = command.replace("/tmp", str(tmp_path)).replace("/run/cluster-secrets", str(secrets))
        done = run(["bash", "-c", text], timeout=10, env={**os.environ, "HOME": str(home)})
        assert done.ok, (command, done.tail)
    found = {str(path.relative_to(home)): path for path in home.rglob("*") if path.is_file()}
    assert sorted(found) == [
        ".cache/huggingface/token",
        ".ray/auth_token",
        ".ssh/marin_ray_cluster.pub",
    ]
    assert found[".ray/auth_token"].read_text() == "the RAY_AUTH_TOKEN"
    assert found[".ray/auth_token"].stat().st_mode & 0o777 == 0o600


def test_auth_and_job_settings_reach_every_start_path(production: Fleet) -> None:
    for cluster in production.clusters.values():
        config = committed(production, cluster.name)
        docker = config["docker"]
        assert f"-e RAY_AUTH_MODE={cluster.auth.mode}" in docker["run_options"]
        assert "-e RAY_JOB_STOP_WAIT_TIME_S=30" in docker["head_run_options"]
        assert "-e RAY_JOB_START_TIMEOUT_SECONDS=3600" in docker["head_run_options"]
        assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    staging = write_yaml(committed(production, "us-central2-staging"))
    assert "RAY_AUTH_TOKEN_STAGING" in staging
    assert "--secret=RAY_AUTH_TOKEN " not in staging


def test_a_config_names_the_version_of_its_own_secret_only(place: Place) -> None:
    templates, fleet = place.root / "infra" / "templates", place.load()
    write_version(fleet, "RAY_AUTH_TOKEN", "7")
    text = render_configs(fleet, PINS, templates=templates)["us-east5"]
    assert re.findall(r"versions access (\S+) .*?--secret=(\w+)", text) == [
        ("7", "RAY_AUTH_TOKEN"),
        ("latest", "HF_TOKEN"),
        ("latest", "OPENAI_API_KEY"),
    ]


def test_a_pin_becomes_a_reference_by_digest_and_a_fixed_tag_goes_before_it(place: Place) -> None:
    configs = render_configs(place.load(), PINS, templates=place.root / "infra" / "templates")
    images = {name: read_yaml(text)["docker"]["image"] for name, text in configs.items()}
    base = "docker.pkg.dev/my-project/marin/marin_cluster"
    assert images["us-east5"] == f"us-east5-{base}:20260101@{DIGEST}"
    assert images["us-west4"] == f"us-west4-{base}:20251209"


def test_tokens_are_not_promised_with_a_ray_that_ignores_them(place: Place) -> None:
    templates = place.root / "infra" / "templates"
    old = {"cluster": Pin(tag="4554f82", ray="2.45.0")}
    with pytest.raises(UsageError, match=r"us-east5 wants tokens, and Ray 2\.45\.0 of 4554f82"):
        render_configs(place.load(), old, templates=templates)
    place.edit({"{mode: token, secret: RAY_AUTH_TOKEN}": "{mode: disabled}"})
    assert set(render_configs(place.load(), old, templates=templates)) == {"us-east5", "us-west4"}


def test_an_image_without_a_pin_names_the_command_that_publishes_it(place: Place) -> None:
    with pytest.raises(UsageError, match=r"no LATEST yet(.|\n)*next: invoke cluster-docker"):
        render_configs(place.load(), {}, templates=place.root / "infra" / "templates")


def test_a_sandbox_is_rendered_only_while_it_is_up(place: Place) -> None:
    place.edit(SANDBOX_EDITS)
    templates = place.root / "infra" / "templates"
    with pytest.raises(PrerequisiteMissing, match=r"next: invoke sandbox\.up"):
        render_configs(place.load(), PINS, templates=templates)
    place.sandbox_up()
    configs = render_configs(place.load(), PINS, templates=templates)
    worker = read_yaml(configs["us-east5"])["available_node_types"]["worker"]
    assert (worker["min_workers"], worker["max_workers"]) == (1, 4)
    assert worker["resources"] == {"CPU": 1}
    assert checked_configs(configs) == configs


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{{ cluster.nothing }}", "has no attribute 'nothing'"),
        ("{% if %}", "line 2: Expected an expression"),
        ("{{ nothing | tojson }}", "not JSON serializable"),
    ],
)
def test_a_wrong_template_is_one_clear_error(place: Place, line: str, expected: str) -> None:
    template = place.root / "infra" / "templates" / "gcp.yaml.j2"
    template.write_text(f"cluster_name: a\n{line}\n")
    with pytest.raises(UsageError, match=r"template gcp\.yaml\.j2 cannot be rendered") as caught:
        render_configs(place.load(), PINS, templates=template.parent)
    assert expected in caught.value.why


def test_text_from_the_fleet_file_cannot_break_out_of_its_scalar(place: Place) -> None:
    place.edit({"name_prefix: marin-": "ssh: {proxy_command: 'a\"b: c # d && y: z'}"})
    configs = render_configs(place.load(), PINS, templates=place.root / "infra" / "templates")
    auth = read_yaml(configs["us-east5"])["auth"]
    assert auth == {"ssh_user": "ray", "ssh_proxy_command": 'a"b: c # d && y: z'}


def test_what_ray_cannot_work_with_is_refused_with_the_cluster_named(place: Place) -> None:
    with pytest.raises(ToolFailed, match=r"us-east5: lacks provider, which Ray demands"):
        checked_configs({"us-east5": "cluster_name: a\n"})
    assert check_config("- a") == ["not a mapping of keys, so no cluster config"]
    assert check_config("a: [")[0].startswith("not YAML")
