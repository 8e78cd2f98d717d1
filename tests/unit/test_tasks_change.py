"""Which tasks change something, and what all that do have in common: README, "Tasks"."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path

import pytest
from invoke.config import Config
from invoke.context import Context

from rayfleet.errors import UsageError
from tests.unit.test_tasks_table import ROOT, TASKS, arguments

CHANGING = {
    "auth.init": "secrets",
    "auth.keys": "the operator's keys",
    "auth.rotate": "secrets, and clusters by a restart",
    "cluster-docker": "registries, pins",
    "download": "the operator's files",
    "gc": "clouds",
    "image.build": "the engine",
    "image.promote": "registries, pins",
    "image.publish": "registries, pins",
    "image.rollback": "registries, pins",
    "jobs.restore": "clusters",
    "jobs.stop": "clusters",
    "jobs.vault": "the vault",
    "registry.cleanup": "registries",
    "release": "all of it",
    "restart": "clusters",
    "start": "clusters",
    "stop": "clusters",
    "update-configs": "the generated configs",
    "upload": "clusters",
    "workers.add": "clouds",
    "workers.init": "clouds",
    "workers.remove": "clouds",
}
"""The tasks that plan a change, and what they change: each shows its plan with --dry-run."""

OTHERS = {
    "run what was typed": {"exec", "ssh", "jobs.submit"},
    "steer a rollout whose plan was shown": {
        *("rollouts.abort", "rollouts.pause", "rollouts.promote", "rollouts.resume"),
        *("rollouts.retry", "rollouts.rollback", "rollouts.skip", "rollouts.unlock"),
    },
    "keep on this machine what was read": {
        *("auth.env", "auth.fetch", "jobs.backup", "registry.login"),
    },
    "are the sandbox itself": {"sandbox.down", "sandbox.preempt", "sandbox.up"},
    "read": {
        *("auth.check", "auth.open", "dashboard", "doctor", "fleet.lint", "fleet.list"),
        *("image.history", "image.inspect", "jobs.list", "jobs.logs", "jobs.wait"),
        *("registry.preview", "registry.show", "rollouts.list", "rollouts.show"),
        *("sandbox.status", "status", "tail-logs", "workers.list"),
    },
}
# Their clusters are the whole fleet unless some are named: they write files, and none of a cluster.
WHOLE_FLEET = {"update-configs", "jobs.vault"}


def options(name: str) -> dict[str, object]:
    """The kinds of a task's options by their names."""
    return {argument.name: argument.kind for argument in arguments(name)}


def test_of_every_task_it_is_said_whether_it_changes_anything() -> None:
    said = [*CHANGING, *(name for names in OTHERS.values() for name in names)]
    assert sorted(said) == sorted(TASKS)


@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_something_shows_its_plan_with_dry_run(name: str) -> None:
    assert options(name).get("dry_run") is bool


@pytest.mark.parametrize("name", sorted(CHANGING.keys() - WHOLE_FLEET))
def test_no_cluster_is_changed_that_was_not_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if options(name).get("cluster") is not list:
        return  # exactly one, or none
    monkeypatch.chdir(ROOT)
    config = Config({"fleet": "infra/fleet.yaml", "state": str(tmp_path)})
    given = {
        one.name: one.default if one.default is not Parameter.empty else missing(name, one.name)
        for one in list(signature(TASKS[name].body).parameters.values())[1:]
    }
    given |= {"yes": True} if "yes" in given else {}
    with pytest.raises(UsageError, match="no cluster is chosen"):
        TASKS[name].body(Context(config), **given)


def missing(name: str, option: str) -> list[str] | str:
    """What a task gets for an option that it must have: no cluster, and anything else."""
    return [] if options(name)[option] is list else "x"
