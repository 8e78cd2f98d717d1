"""The jobs that clusters have when they are rolled: two run and one waits, each told apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class RolloutJobs:
    """The jobs of one story of rollouts.

    Those that run may be there from an earlier story. The one that waits is the story's own: a
    head gives up a job that has waited for a quarter of an hour, and nothing else ends it.
    """

    cli: SandboxCli
    story: str

    def kinds(self, cluster: str) -> tuple[Kind, ...]:
        """The jobs of ``cluster``; their names are no other cluster's."""
        running = (replace(kind, name=f"{cluster}-{kind.name}") for kind in (RUNNING, _FILES))
        return (*running, replace(_WAITING, name=f"{cluster}-waiting-{self.story}"))

    def begin(self, *clusters: str) -> None:
        """Have the jobs of ``clusters`` on their heads, and those running that do."""
        for cluster in clusters:
            self._submit(SandboxHead(self.cli, cluster))
        for cluster in clusters:
            # Those of an earlier story have started more than once.
            lines = {name: max(count, 1) for name, count in self.starts(cluster).items()}
            matrix.wait_for(SandboxHead(self.cli, cluster), self.kinds(cluster), lines=lines)

    def submitted(self, *clusters: str) -> dict[str, Any]:
        """What the jobs of ``clusters`` were submitted with, as their heads have it."""
        found: dict[str, Any] = {}
        for cluster in clusters:
            found |= self._own(cluster, SandboxHead(self.cli, cluster).facts())
        return found

    def starts(self, *clusters: str) -> dict[str, int]:
        """How often each job of ``clusters`` has started so far."""
        counted = {}
        for cluster in clusters:
            left = matrix.runs(SandboxHead(self.cli, cluster))
            names = (kind.name for kind in self.kinds(cluster))
            counted |= {name: len(left.get(name, ())) for name in names}
        return counted

    def after_one_more_life(self, *clusters: str) -> dict[str, int]:
        """What :meth:`starts` must say when ``clusters`` have been restarted once more."""
        before = self.starts(*clusters)
        kinds = (kind for cluster in clusters for kind in self.kinds(cluster))
        return {kind.name: before[kind.name] + kind.starts for kind in kinds}

    def alive(self, *clusters: str, starts: Mapping[str, int]) -> dict[str, Any]:
        """Wait until the jobs of ``clusters`` are as at first, each as often started as
        ``starts`` has it; returns what they were submitted with."""
        found: dict[str, Any] = {}
        for cluster in clusters:
            head = SandboxHead(self.cli, cluster)
            facts = matrix.wait_for(head, self.kinds(cluster), lines=starts)
            found |= self._own(cluster, facts)
        return found

    def _own(self, cluster: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        given = matrix.submitted(facts)
        return {kind.name: given[kind.name] for kind in self.kinds(cluster)}

    def _submit(self, head: SandboxHead) -> None:
        kinds = self.kinds(head.cluster)
        _end_others(head, {kind.name for kind in kinds})
        states = _states(head)
        fresh = [kind for kind in kinds if states.get(kind.name) not in ALIVE]
        old = " ".join(f"{matrix.BUCKET}/runs/{kind.name}" for kind in fresh)
        head.shell(f"mkdir -p {matrix.BUCKET}/runs {matrix.BUCKET}/stop")
        head.shell(f"rm -f {old} {matrix.BUCKET}/stop/all")
        for kind in fresh:
            if kind.name in states:
                head.delete(kind.name)
        matrix.submit(head, fresh)


def _states(head: SandboxHead) -> dict[str, str]:
    return {name: job["status"] for name, job in head.facts()["jobs"].items()}


def _end_others(head: SandboxHead, names: set[str]) -> None:
    """Stop what other tests have left running. What waits cannot be stopped, and disturbs none."""
    asked: set[str] = set()

    def ended() -> bool:
        running = {name for name, state in _states(head).items() if state == "RUNNING"} - names
        for name in running - asked:
            head.stop(name)
            asked.add(name)
        return not running

    wait_until(ended, what=f"the end of the jobs of {head.cluster}", timeout=END_SECONDS)
