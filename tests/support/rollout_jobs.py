"""The jobs that clusters have when they are rolled: two run and one waits, each told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rayfleet.waiting import wait_until
from tests.support import job_matrix as matrix
from tests.support.job_matrix import KINDS, RUNNING, Kind
from tests.support.sandbox import SandboxCli
from tests.support.sandbox_head import SandboxHead

# One cluster of each region, whose clusters share a bucket.
BUCKETS = ("us-central2", "europe-west4", "us-east5")
END_SECONDS = 120.0
_FILES = next(kind for kind in KINDS if kind.name == "working-dir")
_WAITING = next(kind for kind in KINDS if kind.name == "no-capacity")


def kinds(cluster: str) -> tuple[Kind, ...]:
    """The jobs of ``cluster``; their names are no other cluster's."""
    models = (RUNNING, _FILES, _WAITING)
    return tuple(replace(kind, name=f"{cluster}-{kind.name}") for kind in models)


def begin(cli: SandboxCli, clusters: Iterable[str]) -> None:
    """Submit the jobs of ``clusters`` to heads that have none, and wait until they run."""
    named = tuple(clusters)
    for cluster in {*named, *BUCKETS}:
        _end_all(SandboxHead(cli, cluster))
    for cluster in BUCKETS:
        matrix.prepare_bucket(SandboxHead(cli, cluster))
    for cluster in named:
        matrix.submit(SandboxHead(cli, cluster), kinds(cluster))
    for cluster in named:
        matrix.wait_for(SandboxHead(cli, cluster), kinds(cluster), lines={})


def alive(cli: SandboxCli, cluster: str, *, lives: int) -> dict[str, Any]:
    """Wait until the jobs of ``cluster`` are as at first, each that runs started ``lives`` times;
    returns what they were submitted with.
    """
    head, expected = SandboxHead(cli, cluster), kinds(cluster)
    lines = {kind.name: lives for kind in expected}
    return matrix.submitted(matrix.wait_for(head, expected, lines=lines))


def submitted(cli: SandboxCli, cluster: str) -> dict[str, Any]:
    """What the jobs of ``cluster`` were submitted with, as its head has them now."""
    return matrix.submitted(SandboxHead(cli, cluster).facts())


def starts(cli: SandboxCli, clusters: Iterable[str]) -> Mapping[str, int]:
    """How often each job of ``clusters`` has started so far."""
    counted = {}
    for cluster in clusters:
        left = matrix.runs(SandboxHead(cli, cluster))
        counted |= {kind.name: len(left.get(kind.name, ())) for kind in kinds(cluster)}
    return counted


def _end_all(head: SandboxHead) -> None:
    """End what other tests have left running or waiting."""
    head.shell(f"mkdir -p {matrix.BUCKET}/stop")
    matrix.end(head, "all")
    asked: set[str] = set()

    def ended() -> bool:
        states = {name: job["status"] for name, job in head.facts()["jobs"].items()}
        left = {name for name, state in states.items() if state in {"PENDING", "RUNNING"}}
        for name in left - asked:
            head.stop(name)
            asked.add(name)
        return not left

    wait_until(ended, what=f"the end of the jobs of {head.cluster}", timeout=END_SECONDS)
