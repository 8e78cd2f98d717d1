"""Made-up rollouts: plans, and journals as an engine would have written them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from rayfleet.rollout.fold import fold
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import (
    Change,
    Direction,
    OnFailure,
    Output,
    Plan,
    PlannedJob,
    Settings,
    Step,
    Target,
    Wave,
    steps_of,
)
from rayfleet.rollout.state import Outcome, Result, State

BEGUN = datetime(2026, 11, 21, 16, 30, tzinfo=UTC)
OLD, NEW = f"sha256:{'3c9a' * 16}", f"sha256:{'d41e' * 16}"
ID = "20261121T163000Z-4f2a"
BY = "ana@ops-1"

SECONDS: Mapping[Step, float] = {
    Step.PREFLIGHT: 2.1,
    Step.SNAPSHOT: 3.4,
    Step.VERIFY: 1.2,
    Step.QUIESCE: 6.0,
    Step.STOP: 14.0,
    Step.EMPTY: 2.5,
    Step.START: 48.0,
    Step.GATES: 31.0,
    Step.PACKAGES: 1.8,
    Step.JOBS: 2.2,
    Step.WATCH: 9.5,
    Step.CLOSE: 0.4,
}
"""What each step takes in an example."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A plan and what has happened to it."""

    plan: Plan
    records: tuple[Record, ...]

    @property
    def state(self) -> State:
        """Where it stands after the last record."""
        return fold(self.plan, self.records)

    def until(self, number: int) -> Example:
        """As it was after so many records."""
        return replace(self, records=self.records[:number])


def make_target(
    cluster: str, jobs: Sequence[PlannedJob] = (), *, change: Change = Change.RESTART
) -> Target:
    """A cluster that is to get the new image."""
    region = "-".join(cluster.split("-")[:2])
    return Target(
        cluster=cluster,
        identity=f"ml-{cluster}",
        project="hai-gcp-models",
        region=region,
        zone=f"{region}-b",
        change=change,
        why="its image is not the pinned one",
        family="cluster",
        head=f"ray-ml-{cluster}-head-7f3a",
        digest_now=OLD,
        digest_wanted=NEW,
        config_now="1f" * 32,
        config_wanted="2e" * 32,
        changes=("image sha256:3c9a3c9a3c9a -> sha256:d41ed41ed41e", "docker.pull_before_run"),
        previous=True,
        workers={"v6e-128": 8},
        jobs=tuple(jobs),
        estimate=120.0,
    )


def make_job(name: str, owner: str = "ana", entrypoint: str = "python train.py") -> PlannedJob:
    """A running job."""
    return PlannedJob(id=name, owner=owner, status="RUNNING", entrypoint=entrypoint)


def make_plan(
    waves: Sequence[Wave],
    targets: Iterable[Target],
    *,
    settings: Settings | None = None,
    estimate: float | None = 540.0,
) -> Plan:
    """A plan of the example operator."""
    return Plan(
        id=ID,
        fleet="infra/fleet.yaml",
        created=BEGUN - timedelta(seconds=40),
        operator=BY,
        command="invoke restart --all --waves 1,100%",
        tool="rayfleet 0.5.0",
        settings=settings or Settings(bake=60.0),
        waves=tuple(waves),
        targets={target.cluster: target for target in targets},
        estimate=estimate,
    )


@dataclass
class Story:
    """Writes a journal: each call adds records at seconds since the begin; they are put in
    order at the end."""

    plan: Plan
    _rows: list[tuple[float, Record]] = field(default_factory=list)

    def say(
        self,
        at: float,
        kind: Kind,
        cluster: str = "",
        *,
        direction: Direction = Direction.FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> None:
        """One record."""
        row = Record(
            number=0,
            at=BEGUN + timedelta(seconds=at),
            kind=kind,
            cluster=cluster,
            direction=direction,
            step=step,
            data=data or {},
        )
        self._rows.append((at, row))

    def begin(self, at: float = 0.0, by: str = BY) -> None:
        """A process takes the rollout up."""
        self.say(at, Kind.BEGUN, data={"by": by, "pid": 4711, "host": "ops-1"})

    def run(
        self,
        at: float,
        cluster: str,
        *,
        direction: Direction = Direction.FORWARD,
        pace: float = 1.0,
        fails: Step | None = None,
        error: Output | None = None,
        killed: Step | None = None,
        begins: Step | None = None,
        outputs: Mapping[Step, Output] | None = None,
        outcome: Outcome | None = None,
    ) -> float:
        """One cluster goes its way from ``at`` on, and gives the second at which it ended.

        It ``fails`` in a step, or is ``killed`` in it; it ``begins`` with a step after a kill.
        """
        target = self.plan.targets[cluster]
        self.say(at, Kind.HELD, cluster, direction=direction)
        steps = steps_of(target, self.plan.settings, direction)
        for step in steps[steps.index(begins) if begins else 0 :]:
            self.say(at, Kind.INTENT, cluster, direction=direction, step=step)
            if step is killed:
                return at
            at += SECONDS[step] * pace
            if step is fails:
                data = error or ERROR
                self.say(at, Kind.FAILED, cluster, direction=direction, step=step, data=data)
                break
            data = (outputs or {}).get(step) or _output(target, step)
            self.say(at, Kind.DONE, cluster, direction=direction, step=step, data=data)
        outcome = outcome or (Outcome.FAILED if fails else Outcome.DONE)
        ended = {"outcome": outcome.value}
        self.say(at + 0.001, Kind.CLUSTER, cluster, direction=direction, data=ended)
        if outcome is not Outcome.FAILED:
            self.say(at + 0.002, Kind.RELEASED, cluster, direction=direction)
        return at + 0.002

    def bake(self, at: float, wave: int) -> float:
        """A wave bakes for as long as the plan says."""
        until = at + self.plan.settings.bake
        data = {"wave": wave, "until": BEGUN.timestamp() + until}
        self.say(at, Kind.BAKING, data=data)
        self.say(until, Kind.BAKED, data={"wave": wave})
        return until

    def finish(self, at: float, result: Result = Result.DONE) -> Example:
        """It is finished."""
        self.say(at, Kind.FINISHED, data={"result": result.value})
        return self.example()

    def example(self) -> Example:
        """What has been told so far."""
        rows = [row for _, row in sorted(self._rows, key=lambda each: each[0])]
        numbered = (replace(row, number=number) for number, row in enumerate(rows, 1))
        return Example(plan=self.plan, records=tuple(numbered))


ERROR: Output = {
    "what": "us-east5: the head does not answer after its start",
    "why": "waited 900 s for http://127.0.0.1:8265/api/version: connection refused\n"
    "the last line of its log: gcs_server: cannot open shared object file",
    "next": f"invoke rollouts.retry {ID} --cluster us-east5",
    "code": 4,
}


def _output(target: Target, step: Step) -> Output:
    ids = [job.id for job in target.jobs]
    if step in {Step.SNAPSHOT, Step.QUIESCE}:
        return {"owed": [{"backup": "20261121T163004Z", "jobs": ids, "stopped": ids}]}
    if step is Step.GATES:
        return {"passed": {"ssh": "it answers", "health": "GCS and head are well", "workers": "8"}}
    if step in {Step.JOBS, Step.WATCH}:
        jobs = [
            {"job": job.id, "owner": job.owner, "outcome": "restored", "reason": "RUNNING"}
            for job in target.jobs
        ]
        return {"jobs": jobs, "lost": [], "next": ""} if step is Step.WATCH else {"jobs": jobs}
    return {}


def four_good() -> Example:
    """Four clusters, a canary first, then three, two at a time: all good."""
    jobs = {
        "us-central2": [
            make_job("train-llama-8b", "ana", "python train.py --size 8b --lr 3e-4"),
            make_job("eval-mmlu", "bob", "python -m eval --suite mmlu"),
        ],
        "us-east5": [make_job("tokenize-c4", "carol", "python tokenize.py --input gs://c4")],
        "europe-west4": [make_job("sweep-17", "", "python sweep.py")],
        "us-west4": [],
    }
    waves = (
        Wave(name="canary", clusters=("us-central2",), canary=True),
        Wave(name="100%", clusters=("us-east5", "europe-west4", "us-west4")),
    )
    plan = make_plan(waves, [make_target(name, jobs[name]) for name in jobs])
    story = Story(plan)
    story.begin()
    at = story.bake(story.run(0.1, "us-central2") + 0.1, 0)
    first = story.run(at + 0.1, "us-east5", pace=1.2)
    ended: dict[Step, Output] = {
        Step.QUIESCE: {"owed": [], "ended": {"sweep-17": "SUCCEEDED"}},
        Step.JOBS: {"jobs": []},
        Step.WATCH: {"jobs": [], "lost": [], "next": ""},
    }
    second = story.run(at + 0.1, "europe-west4", pace=0.9, outputs=ended)
    third = story.run(second + 0.1, "us-west4")
    return story.finish(story.bake(max(first, third) + 0.1, 1) + 0.1)


def failing_canary() -> Example:
    """A canary whose new image does not start, rolled back with its jobs."""
    jobs = [
        make_job("train-llama-8b", "ana", "python train.py --name '<script>alert(1)</script>'"),
        make_job("eval-mmlu", "bob", "python -m eval --suite mmlu"),
    ]
    waves = (
        Wave(name="canary", clusters=("us-east5",), canary=True),
        Wave(name="100%", clusters=("us-central2", "europe-west4")),
    )
    names = [make_target("us-east5", jobs)]
    names += [
        make_target("us-central2", [make_job("tokenize-c4", "carol")]),
        make_target("europe-west4"),
    ]
    names[0] = replace(names[0], unpreservable=("detached actor Registry of namespace serve",))
    settings = Settings(bake=60.0, on_failure=OnFailure.ROLLBACK_FAILED)
    story = Story(make_plan(waves, names, settings=settings))
    story.begin()
    at = story.run(0.1, "us-east5", fails=Step.START, pace=1.5)
    at = story.run(at + 0.1, "us-east5", direction=Direction.BACK)
    return story.finish(at + 0.1, Result.FAILED)


def big_fleet(count: int = 300) -> Example:
    """Many clusters in many regions: a few fail, a job is lost, the last were never begun."""
    names = [f"{_REGIONS[number % 12]}-{number:03}" for number in range(count)]
    targets = [
        make_target(name, [make_job(f"train-{name}-{n}", _OWNERS[n]) for n in range(number % 3)])
        for number, name in enumerate(names)
    ]
    cuts = (0, 1, 1 + count // 4, 1 + count // 2, count)
    waves = tuple(
        Wave(name=name, clusters=tuple(names[a:b]), canary=name == "canary")
        for name, a, b in zip(("canary", "25%", "25%", "rest"), cuts, cuts[1:], strict=False)
    )
    settings = Settings(bake=300.0, parallel=20, per_region=4, max_failures=2)
    story = Story(make_plan(waves, targets, settings=settings, estimate=4200.0))
    story.begin()
    at = 0.1
    for number, wave in enumerate(waves[:3]):
        free = [at] * 20
        for place, name in enumerate(wave.clusters):
            slot = free.index(min(free))
            pace = 0.7 + (place * 37 % 60) / 100
            story_end = _one_of_many(story, free[slot], name, number * 1000 + place, pace)
            free[slot] = story_end
        at = story.bake(max(free) + 0.1, number) + 0.1
    return story.finish(at, Result.FAILED)


def _one_of_many(story: Story, at: float, name: str, number: int, pace: float) -> float:
    if number in {1033, 2040}:
        error = {**ERROR, "what": f"{name}: the head does not answer after its start"}
        return story.run(at, name, pace=pace, fails=Step.GATES, error=error)
    if number == 2017:
        watch = {"jobs": [], "lost": [f"train-{name}-0"], "next": "invoke jobs.vault"}
        return story.run(
            at, name, pace=pace, outputs={Step.WATCH: watch}, outcome=Outcome.WITHOUT_JOBS
        )
    return story.run(at, name, pace=pace)


_REGIONS = (
    *("us-central1", "us-central2", "us-east1", "us-east5", "us-west1", "us-west4"),
    *("europe-west1", "europe-west4", "asia-east1", "asia-south1", "me-west1", "africa-south1"),
)
_OWNERS = ("ana", "bob", "carol")


def killed_and_resumed() -> Example:
    """The operator's machine dies in the middle of two clusters; another goes on next morning,
    where a step needs a second try."""
    clusters = ("us-central2", "us-east5", "europe-west4", "us-west4")
    waves = (
        Wave(name="staging", clusters=clusters[:1]),
        Wave(name="100%", clusters=clusters[1:]),
    )
    targets = [make_target(name, [make_job(f"train-{name}")]) for name in clusters]
    story = Story(make_plan(waves, targets))
    story.begin()
    at = story.bake(story.run(0.1, clusters[0]) + 0.1, 0)
    story.run(at + 0.1, clusters[1], killed=Step.START)
    story.run(at + 0.2, clusters[2], killed=Step.STOP, pace=1.3)
    morning = 52_000.0
    story.begin(morning, by="bob@laptop")
    story.run(morning + 0.1, clusters[1], begins=Step.START, fails=Step.GATES)
    second = story.run(morning + 0.1, clusters[2], begins=Step.STOP)
    story.run(second + 0.1, clusters[3])
    paused = second + 140.0
    story.say(paused, Kind.PAUSED, data={"reason": "us-east5 has failed"})
    later = paused + 1900.0
    asked = {"verb": "retry", "clusters": ["us-east5"], "by": "bob@laptop"}
    story.say(later, Kind.REQUEST, data=asked)
    story.begin(later + 0.1, by="bob@laptop")
    ended = story.run(later + 0.2, clusters[1], begins=Step.START)
    return story.finish(story.bake(ended + 0.1, 1) + 0.1)


EXAMPLES = {
    "four_good": four_good,
    "failing_canary": failing_canary,
    "big_fleet": big_fleet,
    "killed_and_resumed": killed_and_resumed,
}
