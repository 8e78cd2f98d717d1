"""What is shown of the vault says what is there, and holds no secret."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rayfleet.console import Console
from rayfleet.errors import Declined
from rayfleet.job.model import JobStatus
from rayfleet.job.vault import listing
from rayfleet.job.vault.model import Backup, LostKind, Unrestorable
from rayfleet.job.vault.store import NoBackup, Vault
from tests.unit.job.vault.examples import OTHER, SECRET, TAKEN, URI, job, save

MONTH = timedelta(days=30)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
RICH = job(
    "secretive",
    entrypoint=f"python train.py --value {SECRET} --steps 10",
    metadata={"owner": "ada", "command": f"jobs.submit --env TOKEN={SECRET}", "api_key": "hush-1"},
    runtime_env={
        "working_dir": URI,
        "env_vars": {"HF_TOKEN": SECRET, "STEPS": "10"},
        "pip": [f"--extra-index-url=https://me:{SECRET}@index.example/simple"],
    },
    num_cpus=0.5,
    memory=1 << 30,
    resources={"big": 1.0},
    label_selector={"tier": "spot"},
)
SECRETS = (SECRET, "hush-1", "password-of-a-driver")


class Screen:
    """A console whose both sides can be read."""

    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        self.console = Console(out=self._out, err=self._err)

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> str:
        return self._err.getvalue()

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def screen() -> Iterator[Screen]:
    """A console of the test's own; whatever was shown there must hold no secret."""
    screen = Screen()
    yield screen
    assert [secret for secret in SECRETS if secret in screen.out + screen.err] == []


@pytest.fixture
def saved(vault: Vault) -> Backup:
    """A backup of all kinds of things."""
    return save(
        vault,
        RICH,
        job("cron", status=JobStatus.PENDING, infrastructure=True),
        contents={URI: b"z" * 2000, OTHER: b"z" * 2000},
        unrestorable=(
            Unrestorable(
                kind=LostKind.DRIVER,
                name="02000000",
                detail="python x.py --password password-of-a-driver",
            ),
        ),
        ended={"old": JobStatus.FAILED},
    )


def test_a_new_backup_is_told_in_one_line_with_all_that_it_does_not_hold(
    screen: Screen, saved: Backup
) -> None:
    listing.show_saved(screen.console, saved, as_json=False)
    assert screen.out == f"{saved.id}: 2 jobs, 1 package, 2 kB\n"
    assert screen.err.splitlines() == [
        "left out, of the infrastructure: cron",
        "nobody can give it back: the driver 02000000 (python x.py --password ***)",
    ]


def test_no_jobs_is_said_as_such(screen: Screen, vault: Vault) -> None:
    empty = save(vault)
    listing.show_saved(screen.console, empty, as_json=False)
    assert screen.out == f"{empty.id}: no jobs on east that have not ended\n"


def test_a_new_backup_as_json(screen: Screen, saved: Backup) -> None:
    listing.show_saved(screen.console, saved, as_json=True)
    assert screen.json() == {
        "backup": saved.id,
        "cluster": "east",
        "taken": TAKEN.isoformat(),
        "complete": True,
        "missing": [],
        "jobs": ["secretive"],
        "infrastructure": ["cron"],
        "unrestorable": [
            {"kind": "driver", "name": "02000000", "detail": "python x.py --password ***"}
        ],
        "packages": 1,
        "bytes": 2000,
    }


def test_the_list_has_every_backup_with_its_state_and_why(
    screen: Screen, vault: Vault, saved: Backup
) -> None:
    broken = save(vault, job(), taken=LONG_AGO)
    (vault.root / "backups" / f"{broken.id}.json").write_bytes(b"")
    incomplete = save(vault, job("b", missing=("its label selector",)), cluster="west")
    listing.show_backups(screen.console, vault, [], as_json=False)
    rows = [line.split() for line in screen.out.splitlines()[2:]]
    taken = ["2026-11-21", "13:00:00"]
    assert rows == [
        [incomplete.id, "west", *taken, "1", "0", "0", "B", "incomplete"],
        [saved.id, "east", *taken, "2", "1", "2", "kB", "complete"],
        [broken.id, "east", "2020-01-01", "00:00:00", "damaged"],
    ]
    assert screen.err.splitlines() == [
        f"{incomplete.id} is incomplete: b: its label selector",
        f"{broken.id} is damaged: it is not what was written",
    ]


def test_the_list_as_json_is_of_the_clusters_that_were_asked_for(
    screen: Screen, vault: Vault, saved: Backup
) -> None:
    save(vault, job(), cluster="west")
    (vault.root / "backups" / "mine").touch()
    listing.show_backups(screen.console, vault, ["east"], as_json=True)
    first, second = screen.json()["backups"]
    assert first == {
        "id": saved.id,
        "cluster": "east",
        "taken": TAKEN.isoformat(),
        "state": "complete",
        "missing": [],
        "jobs": 2,
        "packages": 1,
        "bytes": 2000,
    }
    assert (second["id"], second["cluster"], second["state"]) == ("mine", None, "damaged")


def test_an_empty_vault_says_how_to_fill_it(screen: Screen, vault: Vault) -> None:
    listing.show_backups(screen.console, vault, ["east"], as_json=False)
    assert screen.out == ""
    assert "no backups of east" in screen.err
    assert "invoke jobs.backup" in screen.err
    listing.show_backups(screen.console, vault, [], as_json=True)
    assert screen.json() == {"backups": []}


def test_one_backup_is_shown_with_its_jobs(screen: Screen, vault: Vault, saved: Backup) -> None:
    listing.show_backup(screen.console, vault, saved.id, as_json=False)
    head, _, first, second = screen.out.splitlines()
    assert head.split()[:4] == ["job", "status", "owner", "started"]
    assert [cell for cell in first.split("  ") if cell] == [
        "secretive",
        " RUNNING",
        " ada",
        " 2025-11-21 13:00:00",
        " CPU 0.5, memory 1.0 GiB, big 1, label tier=spot",
        " working_dir, env_vars HF_TOKEN=*** STEPS=***, pip",
        " python train.py --value *** --steps 10",
    ]
    assert second.split()[:3] == ["cron", "PENDING", "unknown"]
    assert screen.err.splitlines() == [
        f"{saved.id}: 2 jobs, 1 package, 2 kB; complete",
        "no restore gives it back, for it is of the infrastructure: cron",
        "nobody can give it back: the driver 02000000 (python x.py --password ***)",
    ]


def test_one_backup_as_json_names_variables_without_their_values(
    screen: Screen, vault: Vault, saved: Backup
) -> None:
    listing.show_backup(screen.console, vault, saved.id, as_json=True)
    shown = screen.json()
    first, second = shown["jobs"]
    assert first["runtime_env"] == {
        "working_dir": URI,
        "env_vars": {"HF_TOKEN": "***", "STEPS": "***"},
        "pip": ["--extra-index-url=https://***@index.example/simple"],
    }
    assert first["metadata"]["api_key"] == "***"
    assert first["metadata"]["owner"] == "ada"
    assert (first["num_cpus"], first["num_gpus"], first["memory"]) == (0.5, None, 1 << 30)
    assert (second["runtime_env"], second["infrastructure"]) == (None, True)
    assert shown["ended"] == {"old": "FAILED"}
    assert shown["state"] == "complete"
    assert {package["uri"] for package in shown["packages"]} == {URI, OTHER}


@pytest.mark.parametrize("as_json", [True, False])
def test_a_backup_whose_package_is_damaged_is_shown_as_damaged(
    screen: Screen, vault: Vault, saved: Backup, as_json: bool
) -> None:
    vault.package(saved.packages[0].sha256).write_bytes(b"y" * 2000)
    listing.show_backup(screen.console, vault, saved.id, as_json=as_json)
    if as_json:
        assert screen.json()["state"] == "damaged"
        assert screen.json()["damaged"] == [f"{URI} is damaged", f"{OTHER} is damaged"]
    else:
        assert f"damaged: {URI} is damaged" in screen.err


def test_a_backup_that_is_not_there_is_one_clear_error(screen: Screen, vault: Vault) -> None:
    with pytest.raises(NoBackup):
        listing.show_backup(screen.console, vault, "east", as_json=False)


def prune(
    screen: Screen, vault: Vault, *, needed: Mapping[str, str] | None = None, **options: bool
) -> None:
    def protect(ids: Collection[str]) -> dict[str, str]:
        return {name: why for name, why in (needed or {}).items() if name in ids}

    given = {"dry_run": False, "yes": False, "as_json": False}
    listing.prune(screen.console, vault, MONTH, protect=protect, **(given | options))


def test_pruning_asks_first_and_a_dry_run_deletes_nothing(screen: Screen, vault: Vault) -> None:
    old = save(vault, RICH, contents={URI: b"z"}, taken=LONG_AGO)
    prune(screen, vault, dry_run=True)
    assert screen.out.startswith("would delete 1 backup, 1 package (")
    with pytest.raises(Declined) as declined:
        prune(screen, vault)
    assert declined.value.next_step == "invoke jobs.vault --prune --yes"
    assert vault.backups() == (old,)
    prune(screen, vault, yes=True)
    assert vault.backups() == ()
    assert screen.out.splitlines()[-1].startswith("deleted 1 backup, 1 package (")
    assert f"to delete: {old.id}" in screen.err


def test_where_nothing_is_old_nobody_is_asked(screen: Screen, vault: Vault) -> None:
    kept = save(vault, job(), taken=datetime.now(UTC))
    prune(screen, vault)
    assert screen.out == "deleted 0 backups, 0 packages (0 B)\n"
    assert vault.backups() == (kept,)


@pytest.mark.parametrize("dry_run", [True, False])
def test_pruning_as_json(screen: Screen, vault: Vault, dry_run: bool) -> None:
    old = save(vault, RICH, contents={URI: b"z"}, taken=LONG_AGO)
    prune(screen, vault, dry_run=dry_run, yes=True, as_json=True)
    shown = screen.json()
    assert shown.pop("bytes") > 1000
    assert shown == {
        "dry_run": dry_run,
        "backups": [old.id],
        "packages": 1,
        "leftovers": 0,
        "kept": {},
    }
    assert bool(vault.backups()) is dry_run


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_rollout_needs_is_not_pruned_and_is_told_why(
    screen: Screen, vault: Vault, as_json: bool
) -> None:
    old = save(vault, job(), taken=LONG_AGO)
    prune(screen, vault, needed={old.id: "rollout R is not finished"}, yes=True, as_json=as_json)
    assert vault.backups() == (old,)
    if as_json:
        assert screen.json()["kept"] == {old.id: "rollout R is not finished"}
    else:
        assert f"kept: {old.id}, for rollout R is not finished" in screen.err
        assert "to delete" not in screen.err
