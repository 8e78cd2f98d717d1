"""How long a rollout is thought to take."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.model import Change, Settings, Step, Target, Wave
from rayfleet.rollout.plan.estimate import (
    Sample,
    estimate_plan,
    estimate_targets,
    samples,
)
from rayfleet.rollout.state import Outcome
from tests.support.rollout_examples import make_target
from tests.support.rollout_journal import Journal, staged


def sample(name: str, seconds: float, change: Change = Change.RESTART) -> Sample:
    return Sample(identity=f"ml-{name}", change=change, seconds=seconds)


def timed(*rows: tuple[str, str, float | None]) -> dict[str, Target]:
    return {
        name: replace(make_target(name), region=region, estimate=seconds)
        for name, region, seconds in rows
    }


def test_a_cluster_takes_what_it_took_before_or_what_others_took() -> None:
    known = [sample("a", 90), sample("a", 110), sample("a", 500), sample("b", 60)]
    known.append(sample("a", 20, Change.START))
    wanted = [
        make_target("a"),
        make_target("b"),
        make_target("new"),
        make_target("b-off", change=Change.START),
    ]
    assert estimate_targets(wanted, known) == {"a": 110, "b": 60, "new": 100, "b-off": 20}
    assert estimate_targets(wanted[:1], known[-1:]) == {"a": None}


def test_what_a_rollout_teaches_leaves_out_failures_and_the_time_it_was_dead() -> None:
    journal = Journal(staged("ab", preserve_jobs=False))
    journal.go("a", killed=Step.START)
    for _ in range(1000):
        journal.resume()
    journal.go("a")
    journal.fail("b")
    (learned,) = samples(journal.plan, journal.state)
    assert learned.identity == "ml-a-a"
    # Six steps of a second each; the try that was killed has no end.
    assert learned.seconds == 6
    journal.say(Kind.FAILED, "a", step=Step.GATES, data={"what": "it died in its bake"})
    assert journal.way("a").outcome is Outcome.FAILED
    assert samples(journal.plan, journal.state) == ()


def test_a_plan_takes_its_waves_one_after_the_other_and_their_bakes() -> None:
    targets = timed(("a", "x", 100), ("b", "x", 60), ("c", "y", 50), ("d", "z", 30))
    waves = (Wave(name="canary", clusters=("a",)), Wave(name="rest", clusters=("b", "c", "d")))
    limits = Settings(parallel=2, per_region=1, bake=10)
    # b and c begin, d when c has ended.
    assert estimate_plan(targets, waves, limits) == 100 + 10 + 80 + 10
    assert estimate_plan(targets, waves, replace(limits, parallel=0, bake=0)) == 100 + 60


def test_a_region_has_room_for_so_many() -> None:
    targets = timed(("a", "x", 10), ("b", "x", 10), ("c", "x", 10), ("d", "y", 25))
    waves = (Wave(name="all", clusters=("a", "b", "c", "d")),)
    one = Settings(parallel=3, per_region=1)
    assert estimate_plan(targets, waves, one) == 30
    assert estimate_plan(targets, waves, replace(one, per_region=0)) == 35
    assert estimate_plan(targets, waves, replace(one, parallel=1)) == 55


def test_what_is_unknown_stays_unknown() -> None:
    waves = (Wave(name="all", clusters=("a", "b")),)
    assert estimate_plan(timed(("a", "x", 1), ("b", "y", None)), waves, Settings()) is None


@pytest.mark.parametrize("parallel", [1, 4, 32, 0])
def test_the_estimate_lies_between_the_bounds_of_any_schedule(parallel: int) -> None:
    random = Random(parallel)  # noqa: S311
    rows = [(f"c{n}", f"r{random.randrange(9)}", random.uniform(1, 99)) for n in range(1000)]
    targets = timed(*rows)
    took = estimate_plan(
        targets,
        (Wave(name="all", clusters=tuple(targets)),),
        Settings(parallel=parallel, per_region=2),
    )
    assert took is not None
    work = sum(seconds for _, _, seconds in rows)
    assert max(work / (parallel or 18), max(row[2] for row in rows)) <= took + 1e-6
    assert took <= work + 1e-6
