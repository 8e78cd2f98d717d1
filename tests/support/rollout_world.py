"""One cluster in memory, for the steps of a rollout: machines, a head with a real shell, jobs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rayfleet.cluster.channel import CommandResult
from rayfleet.cluster.config import LaunchConfig
from rayfleet.console import Console
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.fleet.model import (
    Auth,
    AuthMode,
    Cluster,
    Fleet,
    Outputs,
    Provider,
    Registries,
    RolloutPolicy,
    Ssh,
)
from rayfleet.job.client import JobClient
from rayfleet.job.dashboard import Answer, Unauthorized
from rayfleet.job.model import LOST_WITH_HEAD, Job, JobStatus, UnknownJob
from rayfleet.job.preserve import Preserver
from rayfleet.job.snapshot.source import Look
from rayfleet.job.snapshot.taker import take_backup
from rayfleet.job.vault.model import Backup, SavedJob
from rayfleet.project import Project
from rayfleet.rollout.model import (
    Change,
    Direction,
    Output,
    Owed,
    Plan,
    Settings,
    Step,
    Target,
    owed_after,
    owed_of,
)
from rayfleet.rollout.performer import Task
from rayfleet.rollout.steps.links import Links
from rayfleet.rollout.steps.site import Site
from tests.unit.job.canned import FakeClock
from tests.unit.job.restore.fake_head import EPOCH, FakeHead, job_row

DIGEST = f"sha256:{'a' * 64}"
BEGUN = datetime(2026, 11, 21, 16, 30, tzinfo=UTC)
PLAN_ID = "20261121T163000Z-4f2a"
BY = "ana@ops-1"

NODES = [
    {"node_id": "1", "state": "ALIVE", "is_head_node": True, "labels": {}, "resources_total": {}},
    {
        "node_id": "2",
        "state": "ALIVE",
        "is_head_node": False,
        "labels": {"ray.io/node-group": "worker"},
        "resources_total": {},
    },
    {"node_id": "3", "state": "DEAD", "is_head_node": False, "labels": {}, "resources_total": {}},
]
PAGES = {
    "/api/version": (200, '{"ray_version": "2.60.0", "session_name": "session_1"}'),
    "/api/gcs_healthz": (200, "success"),
    "/api/v0/nodes": (200, json.dumps({"data": {"result": {"result": NODES}}})),
}

CLUSTER = Cluster(
    name="us-east5",
    identity="ml-us-east5",
    provider=Provider.SANDBOX,
    region="us-east5",
    zone="us-east5-b",
    accelerator="cpu",
    bucket="bucket",
    image="cluster",
    template="sandbox.yaml.j2",
    workers={},
    max_workers=2,
    ssh=Ssh(),
    auth=Auth(mode=AuthMode.DISABLED),
)


class WorldHead(FakeHead):
    """Jobs of one life of a head. ``stop_seconds`` passes until a job that was asked has ended;
    those of ``stubborn`` never do. ``before_list`` is done before each list, once each."""

    def __init__(self, world: World) -> None:
        super().__init__(clock=world.clock)
        self.world = world
        self.asked: dict[str, float] = {}
        self.stubborn: set[str] = set()
        self.stop_seconds = 2.0
        self.before_list: list[Callable[[], None]] = []

    def list(self) -> Any:
        self.world.require()
        if self.before_list:
            self.before_list.pop(0)()
        for name, at in self.asked.items():
            row = self.rows.get(name)
            due = self.clock.now >= at + self.stop_seconds and name not in self.stubborn
            if row is not None and not row.ended and due:
                self.rows[name] = replace(row, status=JobStatus.STOPPED)
        return super().list()

    def stop(self, job_id: str) -> bool:
        self.world.require()

        def effect() -> bool:
            if job_id not in self.rows:
                raise UnknownJob(f"{CLUSTER.name} knows no job {job_id}")
            # Ray takes the request for a job that waits, too, and it waits on.
            if self._now(self.rows[job_id]).status is JobStatus.RUNNING:
                self.asked.setdefault(job_id, self.clock.now)
            return True

        return self._do(f"stop {job_id}", effect)

    def end(self, name: str, status: JobStatus, error_type: str = "") -> None:
        """Let a job end now."""
        self.rows[name] = replace(self.rows[name], status=status, error_type=error_type)


@dataclass
class World:
    """A cluster with one head. ``answers`` False: nobody answers; ``dashboard`` False: only
    Ray's store does; ``refuses``: the token is wrong. ``pages`` are what the dashboard says."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    node: str = "head-1"
    answers: bool = True
    dashboard: bool = True
    refuses: bool = False
    pages: dict[str, tuple[int, str]] = field(default_factory=lambda: dict(PAGES))
    lives: int = 1
    started: int = 0

    def __post_init__(self) -> None:
        self.head = WorldHead(self)
        self.home.mkdir(parents=True)

    @property
    def home(self) -> Path:
        """The home folder on the head that there is now."""
        return self.folder / f"home-{self.lives}"

    def require(self) -> None:
        if not (self.node and self.answers and self.dashboard):
            raise Unreachable("us-east5: the Ray dashboard does not answer")

    def submit(self, name: str, **changes: Any) -> None:
        """A user submits a job, which runs unless it asks for CPUs."""
        job = SavedJob(
            submission_id=name,
            status=JobStatus.PENDING if changes.get("num_cpus") else JobStatus.RUNNING,
            started=EPOCH + self.started,
            entrypoint=f"python {name}.py",
            **changes,
        )
        self.started += 1
        self.head.bodies.append(job.document())
        self.head.rows[name] = job_row(
            name,
            job.status,
            started=job.started,
            entrypoint=job.entrypoint,
            metadata=job.metadata or {},
        )

    def look(self) -> Look:
        """What Ray's store has."""
        if not (self.node and self.answers):
            raise Unreachable("us-east5: could not read the jobs")
        rows = [self.head._now(row) for row in self.head.rows.values()]
        bodies = {str(body["submission_id"]): body for body in self.head.bodies}
        return Look(
            session=f"session_{self.lives}",
            ray_version="2.60.0",
            jobs=tuple(
                SavedJob(
                    submission_id=row.submission_id,
                    status=row.status,
                    started=row.started,
                    entrypoint=row.entrypoint,
                    metadata=row.metadata,
                    num_cpus=bodies[row.submission_id].get("entrypoint_num_cpus"),
                )
                for row in sorted(rows, key=lambda row: row.started)
                if not row.ended
            ),
            ended={
                row.submission_id: row.status
                for row in rows
                if row.ended and row.error_type not in LOST_WITH_HEAD
            },
        )

    def listed(self) -> tuple[Job, ...]:
        """What the dashboard lists."""
        self.require()
        return tuple(map(self.head._now, self.head.rows.values()))

    def lose(self) -> None:
        """All machines go."""
        self.node = ""

    def launch(self, *, keep_records: bool = False) -> str:
        """A new head, which knows no jobs unless it kept its records."""
        self.lives += 1
        self.node = f"head-{self.lives}"
        self.home.mkdir(parents=True)
        old = self.head
        self.head = WorldHead(self)
        if keep_records:
            self.head.rows, self.head.bodies = old.rows, old.bodies
        self.answers = self.dashboard = True
        return self.node


@dataclass
class WorldShell:
    """A head that runs commands in a real shell, at home in the world's folder."""

    world: World
    alive: bool = True
    address: Any = field(default_factory=lambda: SimpleNamespace(cluster=CLUSTER.name))

    def run(self, command: str, *, timeout: float) -> CommandResult:
        if not (self.world.node and self.world.answers):
            raise Unreachable("us-east5: the connection was lost")
        done = subprocess.run(
            ["sh", "-c", command],
            env={"HOME": str(self.world.home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return CommandResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        self.alive = False


class WorldDashboard:
    """The HTTP API of a world's head."""

    def __init__(self, world: World) -> None:
        self.world = world

    def get(self, path: str) -> Answer:
        self.world.require()
        if self.world.refuses:
            raise Unauthorized("us-east5: the head refuses us")
        return Answer(*self.world.pages.get(path.partition("?")[0], (200, "[]")))

    def refusal(self, answer: Answer, doing: str) -> ToolFailed:
        return ToolFailed(f"us-east5: cannot {doing}", why=answer.reason)


class WorldSource:
    """Looks at a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def look(self) -> Look:
        return self.world.look()

    def fetch(self, uris: Any, folder: Path) -> Mapping[str, Path]:
        return {}


@dataclass(frozen=True)
class WorldPreserver(Preserver):
    """Saves and restores the jobs of a world, in a real vault."""

    world: World | None = None

    def backup(
        self,
        cluster: Cluster,
        *,
        onto: Backup | None = None,
        stopped: Collection[str] = (),
        once: bool = False,
    ) -> Backup:
        world = self.world
        assert world is not None
        # Every backup is later than the one before.
        count = len(self.vault.backups())
        return take_backup(
            WorldSource(world),
            self.vault,
            cluster=cluster.name,
            identity=cluster.identity,
            infrastructure=self.infrastructure,
            dashboard=world.listed,
            narrate=lambda text: None,
            onto=onto,
            once=once,
            stopped=stopped,
            clock=world.clock,
            now=lambda: BEGUN + timedelta(seconds=count),
        )

    @contextmanager
    def jobs(self, cluster: Cluster) -> Iterator[JobClient]:
        assert self.world is not None
        self.world.require()
        yield self.world.head  # type: ignore[misc]


class WorldMachines:
    """The machines of a world: ``calls`` tells what was done to them."""

    def __init__(self, world: World, config: LaunchConfig) -> None:
        self.world, self.config = world, config
        self.calls: list[str] = []
        self.image = DIGEST
        self.image_error: Exception | None = None
        self.launch_error: Exception | None = None
        self.nodes = SimpleNamespace(
            head=lambda: world.node,
            image_digest=lambda node: self.image,
            address=lambda node: node,
        )

    def require_image(self) -> None:
        self.calls.append("require image")
        if self.image_error:
            raise self.image_error

    def terminate(self) -> int:
        self.calls.append("terminate")
        there = bool(self.world.node)
        self.world.lose()
        return int(there)

    def require_none(self) -> None:
        self.calls.append("require none")

    def launch(self) -> str:
        self.calls.append("launch")
        if self.launch_error:
            raise self.launch_error
        node = self.world.launch()
        self.trust(node)
        return node

    def trust(self, node: str) -> None:
        self.calls.append(f"trust {node}")


@dataclass(frozen=True, kw_only=True)
class WorldSite(Site):
    """A site in a world."""

    world: World
    ground: WorldMachines

    @property
    def machines(self) -> Any:  # type: ignore[override]
        return self.ground

    @property
    def grounds(self) -> Any:  # type: ignore[override]
        return (self.ground,)

    @property
    def preserver(self) -> Any:  # type: ignore[override]
        return WorldPreserver(
            self.project, self.fleet, Console(), clock=self.world.clock, world=self.world
        )

    def dashboard(self, *, attempts: int = 3) -> Any:
        self.head()
        return WorldDashboard(self.world)

    def _connect(self) -> Any:
        if not (self.world.node and self.world.answers):
            raise Unreachable(f"{self.cluster.name}: cannot reach the head")
        return WorldShell(self.world)


@dataclass
class Way:
    """A cluster's way through the steps, with the notes and outputs that a journal would keep."""

    world: World
    settings: Settings = field(default_factory=Settings)
    direction: Direction = Direction.FORWARD
    change: Change = Change.RESTART
    planned_head: str = "head-1"
    outputs: dict[Step, Output] = field(default_factory=dict)
    notes: list[Output] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    owed: tuple[Owed, ...] = ()
    changed: bool = False

    def __post_init__(self) -> None:
        root = self.world.folder
        folder = root / "rollout"
        for name in ("configs", "previous"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{CLUSTER.name}.yaml").write_text("cluster_name: x\n")
        self.project = Project(root=root, fleet_file=root / "fleet.yaml", state=root / "state")
        self.fleet = Fleet(
            project="p",
            source=root / "fleet.yaml",
            images={},
            registries=Registries(regions=(), hosts={}),
            clusters={CLUSTER.name: CLUSTER},
            rollout=RolloutPolicy(),
            outputs=Outputs(pins=root / "pins", configs=folder / "configs"),
            infrastructure_jobs=("cron*",),
        )
        config = LaunchConfig(
            path=folder / "configs" / f"{CLUSTER.name}.yaml",
            identity=CLUSTER.identity,
            provider={},
            image=f"registry/name:tag@{DIGEST}",
            min_workers={},
            hash="h" * 64,
        )
        self.step = Step.PREFLIGHT
        self.folder = folder
        self.ground = WorldMachines(self.world, config)
        self.links = Links()

    def task(self) -> Task:
        target = Target(
            cluster=CLUSTER.name,
            identity=CLUSTER.identity,
            project="p",
            region=CLUSTER.region,
            zone=CLUSTER.zone,
            change=self.change,
            why="asked for",
            head=self.planned_head,
        )
        plan = Plan(
            id=PLAN_ID,
            fleet="fleet.yaml",
            created=BEGUN,
            operator=BY,
            command="invoke restart",
            tool="x",
            settings=self.settings,
            waves=(),
            targets={CLUSTER.name: target},
        )
        return Task(
            plan=plan,
            target=target,
            direction=self.direction,
            outputs=dict(self.outputs),
            notes=tuple(self.notes),
            owed=self.owed,
            changed=self.changed,
        )

    def site(self) -> WorldSite:
        return WorldSite(
            project=self.project,
            fleet=self.fleet,
            cluster=CLUSTER,
            folder=self.folder,
            operator=BY,
            links=self.links,
            task=self.task(),
            note=self.note,
            narrate=self.said.append,
            clock=self.world.clock,
            world=self.world,
            ground=self.ground,
        )

    def do(self, step: Step, work: Callable[[Site], Output]) -> Output:
        """Perform one step and keep its output."""
        self.step = step
        if step is Step.QUIESCE and not self.notes:
            self.owed = owed_of(self.outputs[Step.SNAPSHOT])
        output = work(self.site())
        self.outputs[step] = output
        self.owed = owed_after(self.owed, step, output)
        self.notes.clear()
        return output

    def note(self, note: Output) -> None:
        """What a step wants kept, should its process die."""
        self.notes.append(dict(note))
        self.owed = owed_after(self.owed, self.step, note)

    def die(self) -> None:
        """Another process goes on from here: it has no connection and has seen nothing."""
        self.links = Links()
