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

END_SECONDS = 120.0
ALIVE = frozenset({"PENDING", "RUNNING"})
_FILES = next(kind for kind in KINDS if kind.name == "working-dir")
_WAITING = next(kind for kind in KINDS if kind.name == "no-capacity")


def kinds(cluster: str) -> tuple[Kind, ...]:
    """The jobs of ``cluster``; their names are no other cluster's."""
    models = (RUNNING, _FILES, _WAITING)
    return tuple(replace(kind, name=f"{cluster}-{kind.name}") for kind in models)


def begin(cli: SandboxCli, clusters: Iterable[str]) -> None:
    """Have the jobs of ``clusters`` on their heads and running; those that are there stay."""
    lacking = [name for name in clusters if not _there(cli, name)]
    for cluster in lacking:
        head = SandboxHead(cli, cluster)
        _end_running(head)
        known = _states(head.facts())
        fresh = [kind for kind in kinds(cluster) if known.get(kind.name) not in ALIVE]
        old = " ".join(f"{matrix.BUCKET}/runs/{kind.name}" for kind in fresh)
        head.shell(f"mkdir -p {matrix.BUCKET}/runs {matrix.BUCKET}/stop")
        head.shell(f"rm -f {old} {matrix.BUCKET}/stop/all")
        for kind in fresh:
            if kind.name in known:
                head.delete(kind.name)
        matrix.submit(head, fresh)
    for cluster in lacking:
        matrix.wait_for(SandboxHead(cli, cluster), kinds(cluster), lines={})


def alive(cli: SandboxCli, cluster: str, *, starts: Mapping[str, int]) -> dict[str, Any]:
    """Wait until the jobs of ``cluster`` are as at first, each as often started as ``starts`` has
    it; returns what they were submitted with.
    """
    head = SandboxHead(cli, cluster)
    return _saved(matrix.wait_for(head, kinds(cluster), lines=starts))


def submitted(cli: SandboxCli, cluster: str) -> dict[str, Any]:
    """What the jobs of ``cluster`` that have not ended were submitted with."""
    return _saved(SandboxHead(cli, cluster).facts())


def starts(cli: SandboxCli, clusters: Iterable[str]) -> dict[str, int]:
    """How often each job of ``clusters`` has started so far."""
    counted = {}
    for cluster in clusters:
        left = matrix.runs(SandboxHead(cli, cluster))
        counted |= {kind.name: len(left.get(kind.name, ())) for kind in kinds(cluster)}
    return counted


def once_more(before: Mapping[str, int], clusters: Iterable[str]) -> dict[str, int]:
    """What :func:`starts` must say after one more life of ``clusters``."""
    return {
        kind.name: before[kind.name] + kind.starts
        for cluster in clusters
        for kind in kinds(cluster)
    }


def _saved(facts: Mapping[str, Any]) -> dict[str, Any]:
    given = matrix.submitted(facts)
    return {name: given[name] for name, state in _states(facts).items() if state in ALIVE}


def _states(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: job["status"] for name, job in facts["jobs"].items()}


def _there(cli: SandboxCli, cluster: str) -> bool:
    states = _states(SandboxHead(cli, cluster).facts())
    wanted = {kind.name: "RUNNING" if kind.starts else "PENDING" for kind in kinds(cluster)}
    running = {name for name, state in states.items() if state == "RUNNING"}
    return wanted.items() <= states.items() and running <= wanted.keys()


def _end_running(head: SandboxHead) -> None:
    """Stop what other tests have left running. What waits cannot be stopped, and disturbs none."""
    asked: set[str] = set()

    def ended() -> bool:
        running = {name for name, state in _states(head.facts()).items() if state == "RUNNING"}
        for name in running - asked:
            head.stop(name)
            asked.add(name)
        return not running

    wait_until(ended, what=f"the end of the jobs of {head.cluster}", timeout=END_SECONDS)
