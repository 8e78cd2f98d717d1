"""The clusters of the model of rollouts: heads that live and go, jobs that users give them, and
what each step does to both. What holds for the jobs is checked as it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rayfleet.rollout.model import Change, Direction, Output, Owed, Step, owed_document

PLANNED, OURS, BY_HAND = "planned", "ours", "by hand"

Notes: TypeAlias = Generator[Output, None, Output]


class Refused(Exception):
    """A step has failed for a reason of its own."""


@dataclass
class Ground:
    """One cluster. ``head`` tells who made it (empty: there is none), ``image`` what it runs.

    ``running`` are jobs on the head; of those that it has ended, ``stopped`` were asked by us, and
    ``ended`` ended by themselves. ``known_ends`` are endings that some backup has. ``gone`` are
    jobs that somebody has killed by hand, ``forgotten`` those whose end went with a head that
    somebody replaced by hand: nobody can know of either.
    """

    name: str
    change: Change
    preserve: bool
    head: str = PLANNED
    image: str = "old"
    running: list[str] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    known_ends: set[str] = field(default_factory=set)
    accepted: list[str] = field(default_factory=list)
    over: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    backups: int = 0
    runs: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """A cluster that is to be started has no head yet; another one has jobs."""
        if self.change is Change.START:
            self.head = ""
        for _ in range(2):
            self.submit()

    # What others do.

    def submit(self) -> None:
        """A user gives the head a job, through Ray itself."""
        if self.head:
            job = f"{self.name}-job{len(self.accepted)}"
            self.accepted.append(job)
            self.running.append(job)
            self.runs[job] += 1

    def end_one(self) -> None:
        """The oldest job ends by itself, or its user stops it."""
        if self.running:
            job = self.running.pop(0)
            self.ended.add(job)
            self.over.add(job)

    def restart_by_hand(self) -> None:
        """Somebody ends the head, and what runs there, starts another one and gives it a job."""
        self.gone |= set(self.running)
        self.forgotten |= self.ended - self.known_ends
        self._lose()
        self.head, self.image = BY_HAND, "by hand"
        self.submit()

    # What the steps do.

    def perform(
        self, step: Step, direction: Direction, owed: Sequence[Owed], *, changed: bool
    ) -> Notes:
        """Do a step; yields its notes, each before that is true, and returns its output."""
        if step is Step.QUIESCE:
            return (yield from self.look(owed))
        if step in {Step.STOP, Step.EMPTY}:
            return (yield from self.stop(owed))
        if step is Step.START:
            return (yield from self.start(direction, owed))
        if step is Step.SNAPSHOT:
            return self._snapshot(owed)
        if step is Step.PREFLIGHT:
            self._preflight(direction, changed=changed)
        elif step is Step.JOBS:
            self._give_back(owed)
        return {}

    def _preflight(self, direction: Direction, *, changed: bool) -> None:
        if direction is Direction.BACK:
            return
        if self.head == BY_HAND:
            raise Refused("its head was replaced since the plan was made")
        if not self.head and self.change is Change.RESTART and not changed:
            raise Refused("it has no head")

    def _snapshot(self, owed: Sequence[Owed]) -> Output:
        if not self.head:
            return {"backup": "", "owed": owed_document(owed)}
        stopped = {job for one in owed for job in one.stopped}
        self._see_ends(stopped)
        unpaid = [
            job
            for one in owed
            for job in one.jobs
            if job not in self.known_ends and job not in self.running
        ]
        return self._saved([*unpaid, *self.running], stopped)

    def look(self, owed: Sequence[Owed]) -> Notes:
        """Save what runs, ask it to end, and take out what has ended by itself."""
        if not self.head:
            return {"owed": owed_document(owed)}
        jobs = [job for one in owed for job in one.jobs]
        stopped = {job for one in owed for job in one.stopped}
        while self.running:
            job = self.running[-1]
            stopped.add(job)
            jobs = list(dict.fromkeys([*jobs, *self.running]))
            yield self._saved(jobs, stopped)
            if job in self.running:  # else it has ended just then
                self.running.remove(job)
                self.stopped.add(job)
        # From here to the end of the head nobody comes between.
        self._see_ends(stopped)
        return self._saved([job for job in jobs if job not in self.known_ends], stopped)

    def stop(self, owed: Sequence[Owed]) -> Notes:
        """End the head, if it is there; what came to it since is saved first."""
        last: Output = {}
        if self.head and self.preserve:
            last = yield from self.look(owed)
        self._lose()
        return last

    def start(self, direction: Direction, owed: Sequence[Owed]) -> Notes:
        """Have a head of the wanted image; one that has to be made anew is saved first."""
        wanted = "old" if direction is Direction.BACK else "new"
        last: Output = {}
        if not (self.head and self.image == wanted):
            if self.head and self.preserve:
                if self.running and self.change is Change.START:
                    raise Refused("it has jobs already")
                last = yield from self.look(owed)
            self._lose()
            self.head, self.image = OURS, wanted
        return last

    def _give_back(self, owed: Sequence[Owed]) -> None:
        for job in dict.fromkeys(job for one in owed for job in one.jobs):
            if job in self.running or job in self.known_ends | self.ended:
                continue
            assert job not in self.over - self.forgotten, f"{job} came back after its end"
            self.running.append(job)
            self.runs[job] += 1

    def _see_ends(self, asked: set[str]) -> None:
        """What a look takes for ended by itself: all that has ended and was not asked to."""
        self.known_ends |= self.ended | (self.stopped - asked)

    def _saved(self, jobs: Sequence[str], stopped: set[str]) -> Output:
        self.backups += 1
        backup = f"{self.name}-{self.backups}"
        asked = tuple(job for job in jobs if job in stopped)
        owed = Owed(backup=backup, jobs=tuple(jobs), stopped=asked)
        return {"backup": backup, "owed": owed_document([owed])}

    def _lose(self) -> None:
        """The head goes, and all that it has."""
        self.head = ""
        self.running, self.stopped, self.ended = [], set(), set()

    # The rules.

    def check(self, owed: Sequence[Owed]) -> None:
        """Every job that was accepted runs, or has ended by itself, or is owed from the vault."""
        if not self.preserve:
            return
        safe = {job for one in owed for job in one.jobs} | set(self.running) | self.over
        lost = [job for job in self.accepted if job not in safe | self.gone]
        assert not lost, f"{', '.join(lost)} is lost"

    def check_end(self) -> None:
        """All jobs run again on a cluster that is well."""
        if not self.preserve:
            return
        here = set(self.running) | self.over | self.gone
        missing = [job for job in self.accepted if job not in here]
        assert not missing, f"{', '.join(missing)} is not given back"
