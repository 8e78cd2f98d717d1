"""The journal and the folder of a rollout: what is written is whole, in order, and there."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rayfleet.errors import Locked, PrerequisiteMissing, UsageError
from rayfleet.rollout.journal.file import Journal
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import ID, Rollout, Rollouts, myself, new_id
from rayfleet.rollout.model import Step
from rayfleet.rollout.state import Result
from rayfleet.waiting import wait_until
from tests.support.disk_calls import recorded_calls
from tests.support.rehearsals import create, make_plan

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    return create(tmp_path, make_plan(["a"], ["b"]))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    path = tmp_path / "journal.jsonl"
    path.touch()
    return Journal(path)


def test_a_new_rollout_is_there_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    plan = make_plan(["a"], ["b"])
    made = Rollouts(tmp_path).create(plan, {"a": b"new a", "b": b"new b"}, {"a": b"old a"})
    found = Rollouts(tmp_path).open()
    assert found.folder == made.folder
    assert found.plan == plan
    assert found.records() == ()
    assert {path.name: path.read_bytes() for path in found.configs.iterdir()} == {
        "a.yaml": b"new a",
        "b.yaml": b"new b",
    }
    assert [path.read_bytes() for path in found.previous.iterdir()] == [b"old a"]


def test_a_new_rollout_is_on_the_disk_before_it_gets_its_name_and_so_is_the_name(
    tmp_path: Path,
) -> None:
    """What begins a rollout may be a loss of power away from doing something to a cluster."""
    Rollouts(tmp_path).create(make_plan(["a"]), {}, {})  # the folder of all is there after it
    plan = make_plan(["b"])
    with recorded_calls() as calls:
        made = Rollouts(tmp_path).create(plan, {"b": b"new"}, {"b": b"old"})
    files = [path for path in made.folder.rglob("*") if path.is_file()]
    folders = [made.folder, made.configs, made.previous]
    assert len(files) == 4
    # every file and every folder of it; its name; the folder that has the name
    assert calls == ["fsync"] * len([*files, *folders]) + ["rename", "fsync"]


def test_the_folder_of_all_rollouts_is_on_the_disk_as_well(tmp_path: Path) -> None:
    state = tmp_path / "not" / "there"
    syncs = []
    for name in ("a", "b"):
        with recorded_calls() as calls:
            Rollouts(state).create(make_plan([name]), {}, {})
        syncs.append(calls.count("fsync"))
    made = [tmp_path / "not", state, state / "rollouts"]
    assert syncs[0] - syncs[1] == len(made), "the folder above each new one"


@pytest.mark.parametrize("followed", [False, True])
def test_a_record_is_on_the_disk_when_its_append_returns(journal: Journal, followed: bool) -> None:
    with journal.followed() if followed else nullcontext():
        for _ in range(2):
            with recorded_calls(write=os.write) as calls:
                journal.append(Kind.BEGUN, data={"by": "olga@desk"})
            assert calls == ["write", "fsync"]


def test_only_the_owner_may_read_a_rollout(rollout: Rollout) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in rollout.folder.rglob("*.*")}
    folders = [rollout.folder, *(path for path in rollout.folder.rglob("*") if path.is_dir())]
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_a_rollout_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    plan = make_plan(["a"])
    with pytest.raises(PrerequisiteMissing):
        Rollouts(tmp_path).create(plan, {"a" * 300: b""}, {})
    assert list((tmp_path / "rollouts").iterdir()) == []
    create(tmp_path, plan)
    with pytest.raises(UsageError, match="there is a rollout"):
        create(tmp_path, plan)
    assert [path.name for path in (tmp_path / "rollouts").iterdir()] == [plan.id]


def test_ids_sort_by_time() -> None:
    now = datetime(2026, 11, 21, 16, 30, tzinfo=UTC)
    ids = [new_id(now + timedelta(seconds=i)) for i in range(50)]
    assert sorted(ids) == ids
    assert all(ID.fullmatch(each) for each in ids)
    assert ids[0].startswith("20261121T163000Z-")


def made_at(state: Path, hour: int) -> Rollout:
    from dataclasses import replace

    plan = replace(make_plan(["a"]), id=f"20261121T{hour:02}0000Z-4f2a")
    return create(state, plan)


def test_the_latest_that_is_not_finished_is_meant(tmp_path: Path) -> None:
    rollouts = Rollouts(tmp_path)
    with pytest.raises(UsageError, match="there is none at all"):
        rollouts.open()
    early, middle, late = (made_at(tmp_path, hour) for hour in (1, 2, 3))
    assert [each.id for each in rollouts.all()] == [late.id, middle.id, early.id]
    finish(late)
    assert rollouts.open().id == middle.id
    finish(middle)
    finish(early)
    assert rollouts.open().id == late.id


def finish(rollout: Rollout) -> None:
    rollout.append(Kind.FINISHED, data={"result": Result.DONE.value})


def test_a_rollout_is_named_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    early, late = (made_at(tmp_path, hour) for hour in (1, 2))
    rollouts = Rollouts(tmp_path)
    assert rollouts.open("20261121T01").id == early.id
    with pytest.raises(UsageError, match=f"2 rollouts begin with 2026.*{late.id}, {early.id}"):
        rollouts.open("2026")
    with pytest.raises(UsageError, match=f"no rollout 2027.*{late.id}"):
        rollouts.open("2027")


def test_a_damaged_rollout_does_not_hide_the_others(tmp_path: Path) -> None:
    early, late = (made_at(tmp_path, hour) for hour in (1, 2))
    (late.folder / "plan.json").write_text("{")
    damaged, good = Rollouts(tmp_path).all()
    assert good.plan == early.plan
    with pytest.raises(UsageError, match=r"plan\.json is no plan"):
        _ = damaged.plan
    with pytest.raises(UsageError, match=late.id):
        Rollouts(tmp_path).open()
    assert Rollouts(tmp_path).open(early.id).state().result is None


def test_records_come_back_as_they_were_written(rollout: Rollout) -> None:
    written = [
        rollout.append(Kind.BEGUN, data=myself("olga@desk")),
        rollout.append(Kind.INTENT, cluster="a", step=Step.STOP),
        rollout.append(Kind.DONE, cluster="a", step=Step.STOP, data={"nodes": 3, "ü": ["\n"]}),
    ]
    again = Rollout(rollout.folder).records()
    assert [each.number for each in again] == [1, 2, 3]
    assert [(e.kind, e.cluster, e.step, e.data) for e in again] == [
        (e.kind, e.cluster, e.step, e.data) for e in written
    ]


def test_two_processes_write_one_journal(journal: Journal) -> None:
    other = Journal(journal.path)
    for i in range(6):
        (journal, other)[i % 2].append(Kind.REQUEST, data={"i": i})
    assert [(each.number, each.data["i"]) for each in journal.read()] == [
        (i + 1, i) for i in range(6)
    ]


def test_many_threads_write_every_record_once_and_each_in_its_order(journal: Journal) -> None:
    def write(name: int) -> None:
        for i in range(40):
            journal.append(Kind.NOTE, cluster=str(name), data={"i": i})

    threads = [threading.Thread(target=write, args=(name,)) for name in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = journal.read()
    assert len(records) == 480
    for name in range(12):
        mine = [each.data["i"] for each in records if each.cluster == str(name)]
        assert mine == list(range(40))
    assert journal.fresh() == list(records)


def test_threads_share_the_syncs_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.touch()
    journal = Counting(path)
    threads = [
        threading.Thread(target=journal.append, args=(Kind.NOTE,), kwargs={"cluster": str(i)})
        for i in range(20)
    ]
    with journal.writing:
        threads[0].start()
        journal.begun.wait(30)
        for thread in threads[1:]:
            thread.start()
        while len(journal._pending) < len(threads) - 1:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert journal.writes == 2
    assert len(journal.read()) == 20


class Counting(Journal):
    """Counts writes, and writes only while ``writing`` is free."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes = 0
        self.writing = threading.Lock()
        self.begun = threading.Event()

    def write(self, file: int, data: bytes) -> None:
        self.begun.set()
        with self.writing:
            self.writes += 1
            super().write(file, data)


def test_what_a_killed_writer_left_of_a_line_is_not_there_and_is_cut_off(tmp_path: Path) -> None:
    whole = Journal(tmp_path / "whole")
    whole.path.touch()
    for i in range(3):
        whole.append(Kind.NOTE, cluster="a", data={"i": i})
    raw = whole.path.read_bytes()
    for cut in range(len(raw)):
        torn = Journal(tmp_path / "torn")
        torn.path.write_bytes(raw[:cut])
        lines = raw[:cut].count(b"\n")
        assert torn.read() == whole.read()[:lines]
        assert torn.fresh() == list(whole.read()[:lines])
        assert torn.append(Kind.NOTE, cluster="b").number == lines + 1
        assert [each.cluster for each in torn.read()] == ["a"] * lines + ["b"]


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda lines: [lines[0], b"{", lines[2]], 2),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [b"\x00\xff", *lines[1:]], 1),
        (lambda lines: [lines[0], lines[1].replace(b"note", b"toast"), lines[2]], 2),
        (lambda lines: [*lines, lines[2]], 4),
    ],
)
def test_a_damaged_line_is_named(
    journal: Journal, damage: Callable[[Any], list[bytes]], line: int
) -> None:
    for _ in range(3):
        journal.append(Kind.NOTE, cluster="a")
    journal.path.write_bytes(b"\n".join([*damage(journal.path.read_bytes().splitlines()), b""]))
    fresh = Journal(journal.path)
    for use in (fresh.read, fresh.fresh, lambda: fresh.append(Kind.NOTE, cluster="b")):
        with pytest.raises(UsageError, match=rf"journal\.jsonl:{line} is damaged"):
            use()


def test_a_journal_that_was_cut_by_somebody_is_not_written_further(journal: Journal) -> None:
    journal.append(Kind.NOTE, cluster="a")
    journal.append(Kind.NOTE, cluster="a")
    journal.path.write_bytes(b"")
    with pytest.raises(UsageError, match="has become shorter"):
        journal.append(Kind.NOTE, cluster="a")
    assert journal.path.read_bytes() == b""


def test_what_others_write_is_news(journal: Journal) -> None:
    other = Journal(journal.path)
    mine = journal.append(Kind.BEGUN)
    theirs = other.append(Kind.REQUEST, data={"verb": "pause"})
    assert journal.fresh() == [mine, theirs]
    assert journal.fresh() == []
    assert [each.kind for each in other.fresh()] == [Kind.BEGUN, Kind.REQUEST]
    with journal.followed():
        assert journal.fresh() == list(journal.read())
        later = other.append(Kind.REQUEST, data={"verb": "abort"})
        own = journal.append(Kind.NOTE, cluster="a")
        assert journal.fresh() == [later, own]


def test_data_that_json_does_not_know_is_the_fault_of_its_record_alone(journal: Journal) -> None:
    with pytest.raises(TypeError):
        journal.append(Kind.DONE, cluster="a", data={"path": Path()})
    assert journal.append(Kind.DONE, cluster="a").number == 1


class Failing(Journal):
    """Writes a part of a line, and fails, as long as ``full``."""

    full = True

    def write(self, file: int, data: bytes) -> None:
        if not self.full:
            super().write(file, data)
            return
        os.write(file, data[:20])
        raise FULL


def test_a_full_disk_leaves_the_journal_whole(journal: Journal) -> None:
    journal.append(Kind.NOTE, cluster="a")
    before = journal.path.read_bytes()
    failing = Failing(journal.path)
    with pytest.raises(PrerequisiteMissing, match="No space left on device"):
        failing.append(Kind.NOTE, cluster="b")
    assert journal.path.read_bytes() == before
    failing.full = False
    assert failing.append(Kind.NOTE, cluster="c").number == 2
    assert [each.cluster for each in failing.fresh()] == ["a", "c"]


def test_one_process_drives_and_the_other_learns_which(rollout: Rollout) -> None:
    other = Rollout(rollout.folder)
    assert not other.running()
    with rollout.drive():
        rollout.append(Kind.BEGUN, data={"by": "olga@desk", "pid": 4711, "host": "desk"})
        assert other.running()
        with pytest.raises(Locked) as refused, other.drive():
            pass
        assert refused.value.exit_code == 5
        assert "olga@desk, process 4711 on desk" in refused.value.text()
        assert rollout.id in refused.value.next_step
    assert not other.running()
    with other.drive():
        assert rollout.running()


class EndsNow(BaseException):
    """What a second Ctrl-C raises in the main thread, wherever it is."""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("others", [0, 5])
def test_an_append_that_a_second_ctrl_c_ends_does_not_end_those_of_others(
    tmp_path: Path, others: int, late: bool
) -> None:
    """They got the Ctrl-C too, and wrote down a defect of rayfleet as their step's failure."""
    path = tmp_path / "journal.jsonl"
    path.touch()
    journal = Ended(path, late=late)
    threads = [
        threading.Thread(target=journal.append, args=(Kind.NOTE,), kwargs={"cluster": str(i)})
        for i in range(others + 1)
    ]
    with journal.writing:
        threads[0].start()
        assert journal.begun.wait(30)
        main = threading.Thread(target=journal.ended, name="main")
        main.start()
        _until(lambda: len(journal._pending) == 1)
        for thread in threads[1:]:
            thread.start()
        _until(lambda: len(journal._pending) == others + 1)
    for thread in (*threads, main):
        thread.join(60)
    assert journal.raised == ["main"]
    written = sorted(record.cluster for record in journal.read())
    # Of the record that was being written nobody has been told; it may be there or not.
    assert [name for name in written if name != "main"] == sorted(map(str, range(others + 1)))
    assert [record.number for record in journal.read()] == list(range(1, len(written) + 1))
    assert journal.fresh() == list(journal.read())


class Ended(Counting):
    """Is ended in the middle of the write that has the record of "main", or (``late``) right
    after it; then never again."""

    def __init__(self, path: Path, *, late: bool) -> None:
        super().__init__(path)
        self.late = late
        self.raised: list[str] = []

    def ended(self) -> None:
        try:
            self.append(Kind.NOTE, cluster="main")
        except EndsNow:
            self.raised.append("main")

    def write(self, file: int, data: bytes) -> None:
        if b'"main"' not in data or threading.current_thread().name != "main":
            super().write(file, data)
            return
        if self.late:
            super().write(file, data)
        else:
            os.write(file, data[: len(data) // 2])
        raise EndsNow


def _until(ready: Callable[[], bool]) -> None:
    wait_until(ready, what="the threads", timeout=60, interval=0.001)
