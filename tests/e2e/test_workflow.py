"""The steps of the workflows, as CI runs them, in a clone with a remote: release, merge, restart.

Last of the e2e tests by its name: afterwards one cluster runs another image than the rest.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from rayfleet.fleet.pins import read_pins
from tests.support.ci_checkout import Checkout, make_checkout
from tests.support.sandbox import ROOT, SandboxCli
from tests.support.workflows import workflows

FLEET = "infra/rehearsal.yaml"
CLUSTER = "us-east5"
# Of the real cloud or of a fresh runner: a login, a key, and the .venv that we run in.
ELSEWHERE = {"scripts/bootstrap.sh", "make get_secret_key"}


def test_a_release_is_proposed_and_once_merged_restarted(
    released: SandboxCli, tmp_path: Path
) -> None:
    environment = {
        "INVOKE_FLEET": FLEET,
        "INVOKE_STATE": str(released.state),
        "CLUSTERS": CLUSTER,
        "IMAGE": "cluster",
        "RESTART_RUNNER": "ops-1",
        "RUNNER_ENVIRONMENT": "self-hosted",
    }
    first = make_checkout(tmp_path, environment)
    add_fleet(first)
    before = released.status()

    run_steps(first, "release", "publish")
    second = first.again("second")
    (first.path / "release").rename(second.path / "release")
    run_steps(second, "release", "propose")
    asked = first.asked_of_gh()
    (create,) = (words for words in asked if words[:2] == ["pr", "create"])
    branch = create[create.index("--head") + 1]
    changed = second.git("diff", "--name-only", "origin/main", f"origin/{branch}").splitlines()
    assert "infra/rehearsal/images.lock.yaml" in changed
    assert f"infra/rehearsal/clusters/{CLUSTER}.yaml" in changed
    assert all(name.startswith("infra/rehearsal/") for name in changed)
    assert {name: entry["head"] for name, entry in released.status().items()} == {
        name: entry["head"] for name, entry in before.items()
    }

    second.merge(branch)
    third = second.again("third")
    run_steps(third, "restart", "restart")
    events = [
        json.loads(line) for line in (third.path / "restart/events.jsonl").read_text().splitlines()
    ]
    assert events[-1]["kind"] == "summary"
    assert events[-1]["result"] == "done"
    assert set(events[-1]["clusters"]) == {CLUSTER}
    assert (third.path / "restart" / "report.html").stat().st_size > 0
    pinned = read_pins(third.path / "infra/rehearsal/images.lock.yaml")["cluster"].digest
    # By the merged fleet: the sandbox's own one still pins the image of before.
    told = third.run(f"invoke status --cluster {CLUSTER} --json")
    (after,) = json.loads(told.stdout)["clusters"]
    assert after["image_digest"] == pinned != before[CLUSTER]["image_digest"]
    assert after["state"] == "healthy", after
    passwords = json.loads((released.state / "sandbox" / "credentials.json").read_text())
    kept = "".join(
        path.read_text(errors="replace")
        for folder in (second.path / "release", third.path / "restart")
        for path in folder.iterdir()
    )
    assert [host for host, entry in passwords.items() if entry["password"] in kept] == []


def add_fleet(checkout: Checkout) -> None:
    """Commit the sandbox's fleet with its pins and configs where git sees them."""
    fleet = yaml.safe_load((ROOT / "infra" / "sandbox.yaml").read_text())
    fleet["outputs"] = {
        "pins": "infra/rehearsal/images.lock.yaml",
        "configs": "infra/rehearsal/clusters",
    }
    (checkout.path / FLEET).write_text(yaml.safe_dump(fleet, sort_keys=False))
    checkout.commit("A fleet to rehearse with", FLEET)


def run_steps(checkout: Checkout, workflow: str, job: str) -> None:
    """Run what a job's steps run, in order."""
    steps = [run for run in workflows()[workflow].runs(job) if run not in ELSEWHERE]
    assert steps
    for step in steps:
        ran = checkout.run(step)
        assert ran.returncode == 0, f"{step}: exit {ran.returncode}\n{ran.stderr}\n{ran.stdout}"
        assert "Traceback" not in ran.stderr
