"""What a restore prints, and its exit code."""

from __future__ import annotations

import io
import json

import pytest

from rayfleet.console import Console
from rayfleet.job.restore.report import JobOutcome, NotRestored, Outcome, Report
from rayfleet.job.vault.model import LostKind, Unrestorable

COMMAND = "invoke jobs.restore --cluster c1 --backup B"


def outcome(job_id: str, outcome: Outcome, reason: str = "", owner: str = "ann@x") -> JobOutcome:
    return JobOutcome(job_id=job_id, owner=owner, outcome=outcome, reason=reason)


def report(*jobs: JobOutcome, infrastructure: tuple[str, ...] = ()) -> Report:
    return Report(
        cluster="c1",
        backup="B",
        command=COMMAND,
        jobs=jobs,
        infrastructure=infrastructure,
        unrestorable=(
            Unrestorable(kind=LostKind.SERVE, name="api", detail="python s.py --token hunter2"),
        ),
    )


MIXED = report(
    outcome("a", Outcome.RESTORED, "RUNNING"),
    outcome("b", Outcome.RESTORED, "RUNNING", owner=""),
    outcome("c", Outcome.FAILED, "HTTP 400: no"),
    outcome("d", Outcome.NOT_RESTORABLE, "not saved: its label selector"),
    infrastructure=("cron",),
)


def shown(subject: Report, *, as_json: bool) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    subject.show(Console(out=out, err=err), as_json=as_json)
    return out.getvalue(), err.getvalue()


def test_the_table_has_every_job_with_its_owner_and_reason_and_all_that_was_left_out() -> None:
    out, err = shown(MIXED, as_json=False)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "a ann@x restored RUNNING" in lines
    assert "b unknown restored RUNNING" in lines
    assert "c ann@x failed HTTP 400: no" in lines
    assert "cron left out infrastructure: it is started with the cluster" in lines
    assert "api not restorable Serve application: python s.py --token ***" in lines
    assert err == "c1: 2 restored, 1 not restorable, 1 failed (from B)\n"


def test_the_document_has_one_entry_for_each_job_of_the_backup() -> None:
    out, err = shown(MIXED, as_json=True)
    document = json.loads(out)
    assert document["cluster"] == "c1"
    assert document["backup"] == "B"
    assert document["jobs"][0] == {
        "job": "a",
        "owner": "ann@x",
        "outcome": "restored",
        "reason": "RUNNING",
    }
    assert [job["job"] for job in document["jobs"]] == ["a", "b", "c", "d"]
    assert document["infrastructure"] == ["cron"]
    assert document["unrestorable"] == [
        {"kind": "Serve application", "name": "api", "detail": "python s.py --token ***"}
    ]
    assert err == ""


def test_a_job_that_is_not_back_is_exit_code_7_with_its_reason_and_the_next_command() -> None:
    with pytest.raises(NotRestored) as caught:
        MIXED.raise_failures()
    assert caught.value.code == 7
    assert caught.value.what == "c1: 2 of 4 jobs were not restored"
    assert "c failed: HTTP 400: no" in str(caught.value)
    assert "d not restorable: not saved: its label selector" in str(caught.value)
    assert caught.value.next_step == COMMAND


def test_what_running_again_cannot_mend_points_to_the_vault() -> None:
    subject = report(outcome("d", Outcome.NOT_RESTORABLE, "not saved: x"))
    with pytest.raises(NotRestored) as caught:
        subject.raise_failures()
    assert caught.value.next_step == "invoke jobs.vault --cluster c1 --backup B"


def test_what_was_never_promised_does_not_count() -> None:
    report(
        outcome("a", Outcome.RESTORED),
        outcome("b", Outcome.ALREADY_THERE),
        outcome("c", Outcome.ENDED),
    ).raise_failures()
