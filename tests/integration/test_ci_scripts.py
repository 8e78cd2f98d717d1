"""The scripts of the workflows with real git; `invoke` is a stand-in that plays its part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ci_checkout import TOKEN, Checkout, make_checkout

pytestmark = pytest.mark.integration

PIN = "infra/images.lock.yaml"
CONFIG = "infra/clusters/us-east5.yaml"
BRANCH = "actions/release-cluster"

# Pins, writes a config, a file of its own in infra, and one that is none of a release's business.
INVOKE = """\
#!/usr/bin/env bash
set -eu
echo "$*" >>"$(dirname "$0")/invoke.log"
case "$*" in
    *--check*) [ -z "${DRIFT-}" ] || exit 4 ;;
    cluster-docker*)
        [ -z "${FAILS-}" ] || exit 2
        if [ -n "${NEWS-}" ]; then echo "# $NEWS" >>infra/images.lock.yaml; fi
        echo '{"pinned": true}' ;;
    update-configs)
        if [ -n "${NEWS-}" ]; then
            echo "# $NEWS" >>infra/clusters/us-east5.yaml
            echo "# $NEWS" >infra/clusters/new.yaml
            echo "stray" >README.md
            echo "secret" >gha-creds-0123.json
        fi ;;
    restart*)
        printf '{"kind":"begun"}\\n{"kind":"summary","rollout":"%s"}\\n' "${ROLLOUT-}"
        exit "${CODE:-0}" ;;
    rollouts.show*) echo "how it went" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = make_checkout(tmp_path, {"INVOKE_FLEET": "infra/fleet.yaml", "IMAGE": "cluster"})
    made.stand_in("invoke", INVOKE)
    return made


def release(checkout: Checkout, name: str, news: str) -> Checkout:
    """Publish in one clone and propose from another, as two jobs do."""
    ran = checkout.run("scripts/ci/publish.sh", NEWS=news)
    assert ran.returncode == 0, ran.stderr
    other = checkout.again(name)
    (checkout.path / "release").rename(other.path / "release")
    ran = other.run("scripts/ci/propose.sh")
    assert ran.returncode == 0, ran.stderr
    return other


def invoked(checkout: Checkout) -> list[str]:
    return (checkout.folder / "bin" / "invoke.log").read_text().splitlines()


def test_a_release_becomes_one_pull_request_of_infra_alone(checkout: Checkout) -> None:
    other = release(checkout, "second", "one")
    assert invoked(checkout)[0] == "fleet.lint"
    assert invoked(checkout)[1] == "registry.login --check --json"  # before anything is built
    changed = other.git("diff", "--name-only", "origin/main", f"origin/{BRANCH}").splitlines()
    assert changed == ["infra/clusters/new.yaml", CONFIG, PIN]
    asked = checkout.asked_of_gh()
    assert [words[:2] for words in asked] == [
        ["auth", "setup-git"], ["pr", "list"], ["pr", "create"], ["workflow", "run"],
    ]  # fmt: skip
    assert asked[-1] == ["workflow", "run", "test.yml", "--ref", BRANCH]
    assert TOKEN not in json.dumps(asked)
    assert TOKEN not in (other.path / ".git" / "config").read_text()


def test_the_next_release_renews_the_pull_request_that_is_open(checkout: Checkout) -> None:
    release(checkout, "second", "one")
    other = release(checkout.again("third"), "fourth", "two")
    created = [words for words in checkout.asked_of_gh() if words[:2] == ["pr", "create"]]
    assert len(created) == 1
    assert other.git("show", f"origin/{BRANCH}:{PIN}").endswith("# two")


def test_a_release_without_news_proposes_nothing(checkout: Checkout) -> None:
    other = release(checkout, "second", "")
    assert checkout.asked_of_gh() == []
    assert other.git("ls-remote", "--heads", "origin").split()[1:] == ["refs/heads/main"]


@pytest.mark.parametrize(("fault", "code"), [({"FAILS": "1"}, 2), ({"DRIFT": "1"}, 4)])
def test_a_release_that_fails_leaves_no_patch(
    checkout: Checkout, fault: dict[str, str], code: int
) -> None:
    ran = checkout.run("scripts/ci/publish.sh", NEWS="one", **fault)
    assert ran.returncode == code
    assert not (checkout.path / "release" / "changes.patch").exists()


@pytest.mark.parametrize("code", [0, 2, 6, 7])
def test_a_restart_keeps_its_events_and_its_exit_code(checkout: Checkout, code: int) -> None:
    summary = checkout.folder / "summary"
    ran = checkout.run(
        "scripts/ci/restart.sh", CODE=str(code), ROLLOUT="r-1", GITHUB_STEP_SUMMARY=str(summary)
    )
    assert ran.returncode == code, ran.stderr
    kept = checkout.path / "restart"
    events = [json.loads(line) for line in (kept / "events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events] == ["begun", "summary"]
    assert (kept / "report.txt").read_text() == "how it went\n"
    assert "how it went" in summary.read_text()
    assert "restart --all --only-outdated --yes --json" in invoked(checkout)
    assert any(line.startswith("rollouts.show r-1 --html") for line in invoked(checkout))
    # Policies are of what runs: not while a restart is half done.
    assert ("registry.cleanup --json" in invoked(checkout)) == (code == 0)


def test_a_restart_of_named_clusters_takes_them_as_they_are_written(checkout: Checkout) -> None:
    ran = checkout.run("scripts/ci/restart.sh", CLUSTERS="us-east5 us-* $(touch /tmp/x)")
    assert ran.returncode == 0, ran.stderr
    (line,) = (each for each in invoked(checkout) if each.startswith("restart"))
    named = "--cluster us-east5 --cluster us-* --cluster $(touch --cluster /tmp/x)"
    assert line == f"restart {named} --only-outdated --yes --json"
    assert not any(each.startswith("rollouts.show") for each in invoked(checkout))


def test_configs_that_are_not_what_the_fleet_says_restart_nothing(checkout: Checkout) -> None:
    ran = checkout.run("scripts/ci/restart.sh", DRIFT="1")
    assert ran.returncode == 4
    assert not any(each.startswith("restart") for each in invoked(checkout))
