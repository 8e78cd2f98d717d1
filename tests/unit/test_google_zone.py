"""Questions to Google's APIs: all pages, all of a zone, and errors that say whose they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet import google_api
from rayfleet.errors import Unreachable
from rayfleet.google_api import ATTEMPTS, MISSING_RESULTS, PartialAnswer, pages
from rayfleet.google_zone import Zone
from tests.unit.job.canned import FakeClock

DISABLED = "Cloud TPU API has not been used in project 1 before or it is disabled."


class Refusal(Exception):
    """What googleapiclient raises, as far as it is looked at."""

    def __init__(self, status: int, message: str = "No.") -> None:
        super().__init__(status)
        self.resp = SimpleNamespace(status=status)
        self.reason = message


@dataclass
class Canned:
    """A collection of an API whose list has these pages; an error is raised."""

    pages: list[Mapping[str, Any] | Exception]
    asked: list[dict[str, Any]] = field(default_factory=list)

    def list(self, **asked: Any) -> Canned:
        self.asked.append(asked)
        return self

    def list_next(self, query: Canned, answer: Mapping[str, Any]) -> Canned | None:
        return self if self.pages else None

    def execute(self) -> Mapping[str, Any]:
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page


@pytest.fixture
def zone() -> Zone:
    return Zone(owner="marin", project="p", zone="z", clock=FakeClock())


def with_tpus(zone: Zone, *pages: Mapping[str, Any] | Exception) -> Canned:
    """``zone``, whose slices and requests are these."""
    collection = Canned(list(pages))
    api = SimpleNamespace(nodes=lambda: collection, queuedResources=lambda: collection)
    zone.__dict__["tpus"] = api
    return collection


def test_every_page_is_read(zone: Zone) -> None:
    collection = with_tpus(zone, {"nodes": [{"name": "a"}]}, {}, {"nodes": [{"name": "b"}]})
    assert [row["name"] for row in zone.slices()] == ["a", "b"]
    assert collection.asked == [{"parent": "projects/p/locations/z"}]


def test_a_zone_that_google_does_not_reach_is_not_empty(zone: Zone) -> None:
    half = {"queuedResources": []}, {"unreachable": ["us-east5-b"]}
    with_tpus(zone, *half * ATTEMPTS)
    with pytest.raises(Unreachable, match="Google does not reach us-east5-b"):
        zone.requests()


@pytest.mark.parametrize("code", sorted(MISSING_RESULTS))
def test_a_warning_that_something_is_missing_is_an_error_and_any_other_is_not(code: str) -> None:
    answer = {"items": [{"name": "a"}], "warning": {"code": code, "message": "Some are missing."}}
    with pytest.raises(PartialAnswer, match=f"{code}: Some are missing."):
        pages(Canned([answer]), "items", {})
    other = {**answer, "warning": {"code": "NO_RESULTS_ON_PAGE"}}
    assert pages(Canned([other]), "items", {}) == answer["items"]


def test_googles_own_documents_have_these_warnings() -> None:
    import googleapiclient  # type: ignore[import-untyped]

    documents = Path(googleapiclient.__file__).parent / "discovery_cache/documents"
    schemas = json.loads((documents / "compute.v1.json").read_text())["schemas"]
    for name in ("InstanceList", "FirewallList"):
        warning = schemas[name]["properties"]["warning"]["properties"]
        assert set(warning["code"]["enum"]) > MISSING_RESULTS


def test_no_other_module_reads_a_list_of_google() -> None:
    """A list that is read elsewhere may end after its first page, or lack a part and say so."""
    package = Path(google_api.__file__).parent
    readers = [
        path
        for path in package.rglob("*.py")
        if "emulator" not in path.parts
        and re.search(r"google_(api|zone) import|import google\b", path.read_text())
    ]
    assert len(readers) > 5
    for path in readers:
        assert ".list(" not in path.read_text(), path


def test_a_project_without_the_api_has_no_tpus_and_one_that_refuses_is_not_empty(
    zone: Zone,
) -> None:
    with_tpus(zone, Refusal(403, DISABLED))
    assert zone.slices() == []
    for refusal in (Refusal(403, "Permission denied."), Refusal(400, DISABLED)):
        with_tpus(zone, refusal)
        with pytest.raises(Unreachable, match="marin: cannot list the TPU slices: 40"):
            zone.slices()


def test_what_may_pass_is_asked_again_and_what_is_not_there_is_none(zone: Zone) -> None:
    with_tpus(zone, Refusal(503), Refusal(429), {"nodes": [{"name": "a"}]})
    assert len(zone.slices()) == 1
    assert zone.get("look", lambda: Canned([Refusal(404)])) is None
    with pytest.raises(Unreachable, match="marin: cannot look: 500") as error:
        zone.get("look", lambda: Canned([Refusal(500)] * 9))
    assert error.value.next_step == "run the same again later"
    assert (zone.slice("a"), zone.request("a")) == (
        "projects/p/locations/z/nodes/a",
        "projects/p/locations/z/queuedResources/a",
    )
