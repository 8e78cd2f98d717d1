"""What holds for every workflow of .github: pinned actions, least rights, commands that exist."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rayfleet.tasks import ns
from tests.support.workflows import ROOT, Workflow, invocations, scripts_of, workflows
from tests.unit.test_next_steps import _flags

WORKFLOWS = workflows()
EVERY = pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=WORKFLOWS)

# Actions are the only code of others that runs beside our credentials. Each commit was looked up;
# a new one belongs here, with its version, once somebody has read it.
PINS = {
    "actions/checkout": ("08c6903cd8c0fde910a37f88322edcfb5dd907a8", "v5.0.0"),
    "actions/upload-artifact": ("ea165f8d65b6e75b540449e92b4886f43607fa02", "v4.6.2"),
    "actions/download-artifact": ("d3f86a106a0bac45b974a628896c90dbdf5c8093", "v4.3.0"),
    "google-github-actions/auth": ("7c6bc770dae815cd3e89ee6cdf493a5fab2cc093", "v3.0.0"),
}
LONGEST_MINUTES = 360  # what GitHub gives a job of its own runners
# What strangers may start, or what runs their code beside our secrets.
FORBIDDEN_TRIGGERS = {"pull_request_target", "issue_comment", "workflow_run", "repository_dispatch"}
# What anybody may write into: it is handed over in variables, never pasted into a script.
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def test_the_workflows_are_those_of_a_release() -> None:
    assert set(WORKFLOWS) == {"test", "nightly", "release", "restart"}
    assert {"push", "pull_request"} <= set(WORKFLOWS["test"].triggers)
    for name, cron in (("release", r"\d+ \d+ \* \* [0-6]"), ("nightly", r"\d+ \d+ \* \* \*")):
        assert set(WORKFLOWS[name].triggers) == {"schedule", "workflow_dispatch"}
        (when,) = WORKFLOWS[name].triggers["schedule"]
        assert re.fullmatch(cron, when["cron"])


def test_every_case_of_every_series_runs_each_night() -> None:
    assert WORKFLOWS["nightly"].runs() == ["sudo make test-deep"]


def test_a_merged_pin_starts_the_restart_in_a_protected_environment() -> None:
    restart = WORKFLOWS["restart"]
    assert restart.triggers["push"]["branches"] == ["main"]
    assert "infra/images.lock.yaml" in restart.triggers["push"]["paths"]
    assert {job["environment"] for job in restart.jobs.values()} == {"production"}
    # Nothing of a fork or another branch comes near the clusters.
    assert {job["if"] for job in restart.jobs.values()} == {"github.ref == 'refs/heads/main'"}


@EVERY
def test_actions_are_pinned_to_a_commit_with_its_version(workflow: Workflow) -> None:
    used = re.findall(r"uses: *(\S+)(?: +# *(\S+))?", workflow.text)
    assert len(used) == sum("uses" in step for step in workflow.steps())
    for action, version in used:
        name, _, commit = action.partition("@")
        assert re.fullmatch(r"[0-9a-f]{40}", commit), action
        assert PINS.get(name) == (commit, version), action


@EVERY
def test_rights_are_given_to_jobs_and_no_more_than_they_need(workflow: Workflow) -> None:
    assert workflow.document["permissions"] == {}
    for job in workflow.jobs.values():
        rights = job["permissions"]
        assert isinstance(rights, dict), "read-all and write-all are no lists of what is needed"
        writes = {name for name, right in rights.items() if right == "write"}
        # Who can reach the cloud cannot change this repository, and the other way round.
        assert writes == {"id-token"} or "id-token" not in writes
        assert writes <= {"id-token", "actions", "contents", "pull-requests"}


def test_only_the_job_that_proposes_may_write_here() -> None:
    writers = {
        (workflow.name, name)
        for workflow in WORKFLOWS.values()
        for name, job in workflow.jobs.items()
        if {"contents", "pull-requests", "actions"}
        & {right for right, level in job["permissions"].items() if level == "write"}
    }
    assert writers == {("release", "propose")}


def test_the_cloud_is_reached_by_workload_identity_and_by_those_who_need_it() -> None:
    reaching = set()
    for workflow in WORKFLOWS.values():
        for name, job in workflow.jobs.items():
            logins = [step for step in job["steps"] if "/auth@" in step.get("uses", "")]
            assert ("id-token" in job["permissions"]) == bool(logins)
            for login in logins:
                reaching.add(f"{workflow.name}/{name}")
                assert set(login["with"]) == {"workload_identity_provider", "service_account"}
                assert all(value.startswith("${{ vars.") for value in login["with"].values())
    assert reaching == {"release/publish", "restart/restart"}


@EVERY
def test_every_job_ends_and_none_overtakes_another(workflow: Workflow) -> None:
    assert workflow.document["concurrency"]["group"]
    for job in workflow.jobs.values():
        assert 0 < job["timeout-minutes"] < LONGEST_MINUTES
    if workflow.name != "test":  # half a publish or restart is worse than a late one
        assert workflow.document["concurrency"]["cancel-in-progress"] is False


@EVERY
def test_strangers_start_nothing(workflow: Workflow) -> None:
    assert not FORBIDDEN_TRIGGERS & set(workflow.triggers)


@EVERY
def test_a_checkout_keeps_no_token(workflow: Workflow) -> None:
    checkouts = [step for step in workflow.steps() if "checkout" in step.get("uses", "")]
    assert checkouts
    assert {step["with"]["persist-credentials"] for step in checkouts} == {False}


@EVERY
def test_no_secret_and_no_expression_is_in_a_command(workflow: Workflow) -> None:
    assert [run for run in workflow.runs() if EXPRESSION.search(run)] == []
    # Identities come from workload identity, and the only token is the run's own.
    assert re.findall(r"secrets\.\w+", workflow.text) == []
    assert re.findall(r"credentials_json|service_account_key", workflow.text) == []
    for script in scripts_of(workflow.runs()):
        assert "GH_TOKEN" not in re.sub(r"^#.*$", "", script.read_text(), flags=re.MULTILINE)


@EVERY
def test_a_step_is_one_line_and_runs_what_is_there(workflow: Workflow) -> None:
    targets = set(re.findall(r"^([a-z_-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for run in workflow.runs():
        assert "\n" not in run.strip(), "scripts/ci is where scripts are"
        words = run.removeprefix("sudo ").split()
        if words[0] == "make":
            assert set(words[1:]) <= targets, run
            continue
        assert stat.S_IMODE((ROOT / words[0]).stat().st_mode) & stat.S_IXUSR, run


SCRIPTS = sorted({path for each in WORKFLOWS.values() for path in scripts_of(each.runs())})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_tasks_of_a_script_exist_with_their_flags(script: Path) -> None:
    found = list(invocations(script.read_text()))
    assert found or script.name in {"propose.sh", "lasting.sh"}
    for name, *words in found:
        task: Any = ns[name]
        used = {word.removeprefix("--") for word in words if word.startswith("--")}
        assert used <= _flags(task), f"invoke {name} {words}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_stops_at_the_first_error(script: Path) -> None:
    assert "set -euo pipefail" in script.read_text()
    assert subprocess.run(["bash", "-n", script], timeout=60).returncode == 0


def lasting(state: Path | str, **changed: str) -> subprocess.CompletedProcess[str]:
    """The first script of a restart, on a runner whose folder of state is ``state``."""
    given = {
        "PATH": os.environ["PATH"],
        "RESTART_RUNNER": "ops-1",
        "RUNNER_ENVIRONMENT": "self-hosted",
        "INVOKE_STATE": str(state),
    }
    return subprocess.run(
        [ROOT / "scripts" / "ci" / "lasting.sh"],
        cwd=ROOT,
        env=given | changed,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def kept() -> Iterator[Path]:
    """A folder that is on a disk, whatever /tmp is here."""
    with TemporaryDirectory(dir=ROOT.parent) as folder:
        yield Path(folder)


def test_a_restart_first_sees_that_its_state_lasts() -> None:
    """On a runner of GitHub's the vault, the journal and the leases went with the run."""
    restart = WORKFLOWS["restart"]
    (runner,) = (job["runs-on"] for job in restart.jobs.values())
    assert runner.startswith("${{ vars.RESTART_RUNNER ||")
    assert restart.document["env"]["INVOKE_STATE"] == "${{ vars.RESTART_STATE }}"
    assert restart.document["env"]["RESTART_RUNNER"] == "${{ vars.RESTART_RUNNER }}"
    first, second, *_ = restart.steps()
    assert "checkout" in first["uses"]
    assert second == {"run": "scripts/ci/lasting.sh"}


def test_a_runner_of_ones_own_with_a_folder_that_stays_may_restart(kept: Path) -> None:
    ran = lasting(kept)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"RESTART_RUNNER": ""}, "RESTART_RUNNER names no runner"),
        ({"RUNNER_ENVIRONMENT": "github-hosted"}, "ops-1 is a runner that GitHub deletes"),
        ({"INVOKE_STATE": ""}, "RESTART_STATE names no folder"),
        ({"INVOKE_STATE": ".rayfleet"}, "no absolute path"),
        ({"INVOKE_STATE": "/nowhere/at/all"}, "is not there"),
        ({"INVOKE_STATE": "/dev/shm"}, "is in memory"),
        ({"INVOKE_STATE": str(ROOT / "infra")}, "which each run cleans"),
    ],
)
def test_a_restart_that_could_not_be_resumed_is_refused(
    kept: Path, changed: dict[str, str], said: str
) -> None:
    ran = lasting(kept, **changed)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert "\n  next: " in ran.stderr


def test_a_folder_of_the_runs_own_does_not_last(kept: Path) -> None:
    for name in ("GITHUB_WORKSPACE", "RUNNER_TEMP"):
        (kept / "state").mkdir(exist_ok=True)
        assert "which each run cleans" in lasting(kept / "state", **{name: str(kept)}).stderr


@pytest.mark.parametrize("changes", ["release/changes.patch", "restart/events.jsonl", ".env"])
def test_what_a_run_leaves_is_never_committed(changes: str) -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", changes],
        cwd=ROOT,
        env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        timeout=60,
    )
    assert ignored.returncode == 0
