"""Which clusters change together, and what comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.rollout.model import Target, Wave
from rayfleet.rollout.plan.waves import make_waves
from tests.support.rollout_examples import make_target

OLD, NEW, OTHER = "sha256:old", "sha256:new", "sha256:other"


def targets(*names: str, digest: str = NEW) -> list[Target]:
    return [replace(make_target(name), digest_wanted=digest) for name in names]


def shown(waves: Sequence[Wave]) -> list[str]:
    """``name: clusters``, a canary with a star."""
    return [f"{w.name}{'*' if w.canary else ''}: {' '.join(w.clusters)}" for w in waves]


def test_the_order_goes_first_one_by_one_and_then_the_waves() -> None:
    made = make_waves(
        targets("a", "b", "c", "d", "e", "f", "g"),
        order=("f", "b", "not chosen"),
        waves=(1, "50%", "100%"),
        on_target={NEW},
    )
    assert shown(made) == ["first 1: f", "first 2: b", "rest 1: a", "rest 2: c d", "rest 3: e g"]


def test_a_digest_that_nobody_runs_gets_a_canary_of_one() -> None:
    mixed = [*targets("a", "b"), *targets("c", "d", digest=OTHER), *targets("e", digest=OLD)]
    made = make_waves(mixed, order=(), waves=("100%",), on_target={OLD})
    assert shown(made) == ["canary 1*: a", "canary 2*: c", "rest: b d e"]
    made = make_waves(mixed[:2], order=(), waves=("100%",), on_target=())
    assert shown(made) == ["canary*: a", "rest: b"]


def test_the_first_of_the_order_is_the_canary_if_one_is_needed() -> None:
    made = make_waves(targets("a", "b", "c"), order=("c", "b"), waves=(5,), on_target={OLD})
    assert shown(made) == ["first 1*: c", "first 2: b", "rest: a"]


def test_sizes_are_rounded_down_to_at_least_one_and_the_last_repeats() -> None:
    names = [f"c{number}" for number in range(7)]
    sizes = {
        (2,): [2, 2, 2, 1],
        (1, "25%"): [1, 1, 1, 1, 1, 1, 1],
        ("30%",): [2, 2, 2, 1],
        (1, "60%"): [1, 4, 2],
        ("1%", "100%"): [1, 6],
        (): [7],
        ("3", "250%"): [3, 4],
    }
    for waves, expected in sizes.items():
        made = make_waves(targets(*names), order=(), waves=waves, on_target={NEW})
        assert [len(wave.clusters) for wave in made] == expected, waves


@pytest.mark.parametrize("size", [0, -1, "0%", "some"])
def test_a_size_that_is_none_is_refused(size: int | str) -> None:
    with pytest.raises(ValueError, match=r"wave of|invalid literal"):
        make_waves(targets("a"), order=(), waves=(size,), on_target={NEW})


def test_no_target_makes_no_wave() -> None:
    assert make_waves((), order=("a",), waves=(1,), on_target=()) == ()


@given(
    digests=st.lists(st.sampled_from((OLD, NEW, OTHER)), max_size=12),
    order=st.lists(st.integers(0, 14)),
    waves=st.lists(st.integers(1, 5) | st.integers(1, 120).map("{}%".format), max_size=4),
    on_target=st.sets(st.sampled_from((OLD, NEW, OTHER))),
)
def test_every_target_is_in_one_wave_and_none_before_its_canary(
    digests: list[str], order: list[int], waves: list[int | str], on_target: set[str]
) -> None:
    chosen = [targets(f"c{n}", digest=digest)[0] for n, digest in enumerate(digests)]
    made = make_waves(chosen, order=[f"c{n}" for n in order], waves=waves, on_target=on_target)
    names = [name for wave in made for name in wave.clusters]
    assert sorted(names) == sorted(target.cluster for target in chosen)
    assert all(wave.clusters for wave in made)
    assert len({wave.name for wave in made}) == len(made)
    wanted = {target.cluster: target.digest_wanted for target in chosen}
    proven = set(on_target)
    for wave in made:
        if wave.canary:
            assert len(wave.clusters) == 1
            assert wanted[wave.clusters[0]] not in proven
            proven.add(wanted[wave.clusters[0]])
        assert proven.issuperset(wanted[name] for name in wave.clusters)
