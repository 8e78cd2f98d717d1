"""A backup comes back from its document as it was, or is refused as a whole."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.job.model import JobStatus
from rayfleet.job.vault import document
from rayfleet.job.vault.document import NotABackup, decode_backup, encode_backup
from rayfleet.job.vault.model import Backup, LostKind, SavedJob, SavedPackage, Unrestorable
from tests.unit.job.vault.examples import SECRET, TAKEN, backup, job

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # half a surrogate pair too
NUMBERS = st.integers() | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3)
STATUSES = st.sampled_from(JobStatus)
JOBS = st.builds(
    SavedJob,
    submission_id=ANY_TEXT,
    status=STATUSES,
    started=st.integers(),
    entrypoint=ANY_TEXT,
    metadata=st.none() | TEXTS,
    runtime_env=st.none() | st.dictionaries(ANY_TEXT, JSON, max_size=3),
    num_cpus=st.none() | NUMBERS,
    num_gpus=st.none() | NUMBERS,
    memory=st.none() | st.integers(),
    resources=st.none() | st.dictionaries(ANY_TEXT, NUMBERS, max_size=3),
    label_selector=st.none() | TEXTS,
    infrastructure=st.booleans(),
    missing=st.lists(ANY_TEXT, max_size=2).map(tuple),
)
BACKUPS = st.builds(
    Backup,
    cluster=ANY_TEXT,
    identity=ANY_TEXT,
    taken=st.datetimes(timezones=st.just(UTC)),
    session=ANY_TEXT,
    ray_version=ANY_TEXT,
    jobs=st.lists(JOBS, max_size=3).map(tuple),
    packages=st.lists(
        st.builds(SavedPackage, uri=ANY_TEXT, sha256=ANY_TEXT, size=st.integers()), max_size=2
    ).map(tuple),
    unrestorable=st.lists(
        st.builds(Unrestorable, kind=st.sampled_from(LostKind), name=ANY_TEXT, detail=ANY_TEXT),
        max_size=2,
    ).map(tuple),
    ended=st.dictionaries(ANY_TEXT, STATUSES, max_size=3),
    id=st.just(""),
)


@given(BACKUPS)
def test_every_backup_comes_back_exactly(original: Backup) -> None:
    raw = encode_backup(original)
    restored = decode_backup(raw)
    assert restored == original
    assert encode_backup(restored) == raw  # equality does not tell 1 from 1.0


@pytest.mark.parametrize("field", ["metadata", "runtime_env", "resources", "label_selector"])
@pytest.mark.parametrize("value", [None, {}])
def test_none_and_nothing_are_two_things(field: str, value: object) -> None:
    # rollouts-jobs-logs.md 4.1: what Ray had is given back, and it tells null from {}.
    original = job(**{field: value})
    (restored,) = decode_backup(encode_backup(backup(original))).jobs
    assert getattr(restored, field) == value
    assert restored.document() == original.document()


@pytest.mark.parametrize("value", [None, 0, 0.0, 1, 1.0, 0.5])
def test_a_number_keeps_its_kind(value: float | None) -> None:
    (restored,) = decode_backup(encode_backup(backup(job(num_cpus=value)))).jobs
    assert (restored.num_cpus, type(restored.num_cpus)) == (value, type(value))


def test_the_order_of_jobs_and_of_variables_is_kept() -> None:
    env = {"env_vars": {"Z": "1", "A": "2"}, "working_dir": "gcs://x.zip"}
    original = backup(job("b", runtime_env=env), job("a"), job("c"))
    restored = decode_backup(encode_backup(original))
    assert [one.submission_id for one in restored.jobs] == ["b", "a", "c"]
    assert list((restored.jobs[0].runtime_env or {})["env_vars"]) == ["Z", "A"]


def test_metadata_of_many_kilobytes_survives() -> None:
    metadata = {f"key-{number}": "\N{SNOWMAN}\n\0" * 1000 for number in range(50)}
    (restored,) = decode_backup(encode_backup(backup(job(metadata=metadata)))).jobs
    assert restored.metadata == metadata


def test_read_only_mappings_are_written_like_others() -> None:
    frozen = backup(job(metadata=MappingProxyType({"owner": "ada"})))
    assert decode_backup(encode_backup(frozen)).jobs[0].owner == "ada"


def test_a_moment_is_kept_in_utc_and_needs_a_time_zone() -> None:
    east = TAKEN.astimezone(timezone(timedelta(hours=9)))
    restored = decode_backup(encode_backup(backup(taken=east)))
    assert (restored.taken, restored.taken.tzinfo) == (TAKEN, UTC)
    with pytest.raises(ValueError, match="time zone"):
        encode_backup(backup(taken=datetime(2026, 11, 21)))


@pytest.mark.parametrize(
    ("kind", "readers"),
    [
        (SavedJob, document.JOB),
        (SavedPackage, document.PACKAGE),
        (Unrestorable, document.LOST),
        (Backup, document.BACKUP),
    ],
)
def test_no_field_of_the_model_is_forgotten(kind: Any, readers: dict[str, Any]) -> None:
    assert {field.name for field in fields(kind)} - {"id"} == readers.keys()


def changed(**changes: object) -> bytes:
    """The document of a backup with a secret, changed in places."""
    env = {"env_vars": {"TOKEN": SECRET}}
    value = json.loads(encode_backup(backup(job(runtime_env=env, entrypoint=SECRET))))
    return json.dumps({**value, **changes}).encode()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"{}", "something else"),
        (b"[]", "something else"),
        (changed(kind="a fleet"), "something else"),
        (changed(format=2), r"its format is 2, .* a newer rayfleet"),
        (changed(format=True), "format is unknown"),
        (changed(format=None), "format is unknown"),
        (changed(more=1), "more fields than format 1"),
        (changed(jobs=None), "jobs of the backup"),
        (changed(jobs=[1]), "a job is no mapping"),
        (changed(jobs=[{}]), "a job lacks submission_id, status"),
        (changed(taken="2026-11-21T00:00:00"), "taken of the backup"),
        (changed(taken=SECRET), "taken of the backup"),
        (changed(ended={"a": SECRET}), "ended of the backup"),
        (changed(ended=[SECRET]), "ended of the backup"),
        (changed(packages=[{"uri": 1, "sha256": "", "size": 1}]), "uri of a package"),
        (changed(packages=[{"uri": "", "sha256": "", "size": True}]), "size of a package"),
        (changed(unrestorable=[{"kind": SECRET, "name": "", "detail": ""}]), "kind of what"),
    ],
)
def test_what_is_no_backup_is_refused_with_its_reason(raw: bytes, why: str) -> None:
    with pytest.raises(NotABackup, match=why) as refused:
        decode_backup(raw)
    assert SECRET not in str(refused.value)


JOB_VALUES = [
    ("submission_id", None),
    ("status", "LOST"),
    ("started", 1.5),
    ("started", True),
    ("entrypoint", [SECRET]),
    ("metadata", {"a": 1}),
    ("runtime_env", SECRET),
    ("num_cpus", SECRET),
    ("num_gpus", True),
    ("resources", {"a": SECRET}),
    ("label_selector", {"a": None}),
    ("infrastructure", 1),
    ("missing", SECRET),
]


@pytest.mark.parametrize(("field", "value"), JOB_VALUES)
def test_a_field_of_the_wrong_kind_is_named_and_not_quoted(field: str, value: object) -> None:
    (row,) = json.loads(changed())["jobs"]
    with pytest.raises(NotABackup, match=f"{field} of a job cannot be read") as refused:
        decode_backup(changed(jobs=[{**row, field: value}]))
    assert SECRET not in str(refused.value)
