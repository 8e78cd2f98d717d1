"""A whole release as one plan: image, pin, configs, cleanup policies, clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayfleet.cluster.lifecycle import Lifecycle
from rayfleet.console import Console
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.rollout.restart import Action, Target, carry_out, confirm, plan, show

if TYPE_CHECKING:
    from rayfleet.image.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """How a release is run. ``family`` is the image; ``parallel`` clusters change at once."""

    family: str = "cluster"
    allow_dirty: bool = False
    yes: bool = False
    parallel: int = 2

    def command(self) -> str:
        """The command line that does the same again."""
        words = ["invoke release"]
        words += ["--allow-dirty"] if self.allow_dirty else []
        words += ["--yes"] if self.yes else []
        return " ".join(words)


@dataclass(frozen=True)
class Release:
    """One release of one fleet: the same steps as by hand, in the same order."""

    project: Project
    fleet: Fleet
    console: Console
    options: ReleaseOptions

    def execute(self, *, dry_run: bool, as_json: bool) -> None:
        """Print the plan, or carry it out and print what came of it."""
        if dry_run:
            self.show_plan(as_json=as_json)
            return
        summary = self.run()
        if as_json:
            self.console.json(summary)
            return
        for phase, seconds in self.console.phase_times().items():
            self.console.say(f"  {phase:<18} {seconds:6.1f} s")
        self.console.say(f"released {summary['tag']} ({summary['digest']}); next: invoke status")

    def show_plan(self, *, as_json: bool) -> None:
        """Print what a release would do now; changes nothing.

        Whether a cluster restarts depends on the digest that the build will have, so each
        one is shown with what it runs now and with the jobs that a restart would kill.
        """
        from rayfleet.registry.cleanup import set_cleanup_policies

        build = self._pipeline().plan()
        policies = set_cleanup_policies(self.fleet, console=self.console, regions=(), dry_run=True)
        targets = self._targets_if_changed()
        if as_json:
            self.console.json(
                {
                    "image": build.as_json(),
                    "cleanup": policies.as_data(),
                    "clusters": [_target_json(target) for target in targets],
                }
            )
            return
        self.console.say("1. build, publish to every region, pin")
        build.show(self.console, as_json=False)
        self.console.say(f"2. regenerate {len(self._clusters())} cluster configs")
        self.console.say("3. cleanup policies")
        policies.show(self.console, as_json=False)
        self.console.say("4. clusters, if the image or their config changed")
        show(targets, self.console)

    def run(self) -> dict[str, object]:
        """Do it; stop at the first failure and say what to run next.

        Returns a summary: the digest, the action per cluster, the seconds of each phase.

        Raises:
            RayfleetError: the first failure, with the next command.
        """
        published = self._pipeline().release()
        published.require()
        with self.console.phase("configs"):
            self._step("invoke update-configs", self._configs)
        with self.console.phase("cleanup policies"):
            self._step("invoke registry.cleanup", self._cleanup)
        with self.console.phase("clusters"):
            targets = self._clusters_onto_target()
        return {
            "digest": published.digest,
            "tag": published.tag,
            "pinned": published.pinned,
            "clusters": {target.cluster.name: str(target.action) for target in targets},
            "seconds": dict(self.console.phase_times()),
        }

    def _pipeline(self) -> Pipeline:
        from rayfleet.image.pipeline import Pipeline

        return Pipeline(
            project=self.project,
            fleet=self.fleet,
            console=self.console,
            family=self.options.family,
            allow_dirty=self.options.allow_dirty,
        )

    def _clusters(self) -> list[Cluster]:
        """Those that follow LATEST of the released image."""
        return [
            cluster
            for cluster in self.fleet.clusters.values()
            if cluster.image == self.options.family and not cluster.tag
        ]

    def _configs(self) -> None:
        from rayfleet.fleet import configs

        update = configs.plan_update(self.fleet, root=self.project.root)
        configs.apply_update(update, self.console)

    def _cleanup(self) -> None:
        from rayfleet.registry.cleanup import set_cleanup_policies

        report = set_cleanup_policies(self.fleet, console=self.console, regions=(), dry_run=False)
        report.raise_failures()

    def _clusters_onto_target(self) -> Sequence[Target]:
        life = Lifecycle(self.project, self.fleet, self.console)
        # "Nothing" asks for what brings each one onto its pin: start, restart, or nothing.
        targets = plan(life, self._clusters(), Action.NOTHING)
        command = self.options.command()
        confirm(targets, self.console, yes=self.options.yes, command=command)
        carry_out(life, targets, parallel=self.options.parallel, command=command)
        return targets

    def _targets_if_changed(self) -> Sequence[Target]:
        life = Lifecycle(self.project, self.fleet, self.console)
        rendered = [c for c in self._clusters() if self.fleet.config_path(c).is_file()]
        known = {target.cluster.name: target for target in plan(life, rendered, Action.RESTART)}
        fresh = "it is not running"
        return [
            known.get(c.name) or Target(cluster=c, action=Action.START, why=fresh)
            for c in self._clusters()
        ]

    def _step(self, command: str, work: Callable[[], object]) -> None:
        """Do one step; a failure that names no next command gets the step's own."""
        try:
            work()
        except RayfleetError as error:
            if not error.next_step:
                error.next_step = f"{command}, then {self.options.command()}"
                error.message = error.text()
            raise


def _target_json(target: Target) -> dict[str, object]:
    return {
        "cluster": target.cluster.name,
        "action_if_changed": str(target.action),
        "why": target.why,
        "running_jobs": [
            {"id": job.name, "owner": job.metadata.get("owner", ""), "entrypoint": job.entrypoint}
            for job in target.jobs
        ],
        "jobs_problem": target.jobs_problem,
    }
