"""A whole release as one plan: image, pin, configs, cleanup policies, clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rayfleet.console import Console
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.rollout.model import Change, Plan
from rayfleet.rollout.plan.document import plan_data
from rayfleet.rollout.plan.options import Options, command_line
from rayfleet.rollout.plan.show import plan_lines
from rayfleet.rollout.restart import Restart, plan_restart, run_restart

if TYPE_CHECKING:
    from rayfleet.image.pipeline import Pipeline
    from rayfleet.registry.cleanup import CleanupReport

FRESH = "it is not running"
TO_BE_BUILT = "the image that is built"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """How a release is run. ``family`` is the image, ``rollout`` how the clusters change."""

    family: str = "cluster"
    allow_dirty: bool = False
    yes: bool = False
    rollout: Options = field(default_factory=Options)

    def command(self) -> str:
        """The command line that does the same again, without ``--yes``."""
        words = ["--image", self.family] if self.family != "cluster" else []
        words += ["--allow-dirty"] if self.allow_dirty else []
        return command_line("release", [*words, *self.rollout.flags()])


@dataclass(frozen=True)
class Release:
    """One release of one fleet: the same steps as by hand, in the same order."""

    project: Project
    fleet: Fleet
    console: Console
    options: ReleaseOptions

    def execute(self, *, dry_run: bool, as_json: bool) -> None:
        """Print the plan, or carry it out and print what came of it.

        Raises:
            UsageError: a flag of the rollout makes no sense; nothing was built.
            RayfleetError: the first failure, with the next command.
        """
        self.options.rollout.settings(self.fleet.rollout)
        self.options.rollout.wave_sizes(self.fleet.rollout)
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
        one is shown as it would be with another digest.
        """
        build = self._pipeline().plan()
        policies = self._policies(dry_run=True)
        plan = self._plan_if_changed()
        if as_json:
            self.console.json(
                {
                    "image": build.as_json(),
                    "cleanup": policies.as_data(),
                    "clusters": [_target_json(plan, name) for name in self._names()],
                    "rollout": plan_data(plan) if plan is not None else None,
                }
            )
            return
        self.console.say("1. build, publish to every region, pin")
        build.show(self.console, as_json=False)
        self.console.say(f"2. regenerate {len(self._clusters())} cluster configs")
        self.console.say("3. cleanup policies")
        policies.show(self.console, as_json=False)
        self.console.say("4. clusters, if the image or their config changed")
        for line in plan_lines(plan) if plan is not None else ():
            self.console.data(line)
        for name in self._names():
            if plan is None or name not in plan.targets:
                self.console.data(f"start {name}: {FRESH}")

    def run(self) -> dict[str, object]:
        """Do it; stop at the first failure and say what to run next.

        Returns a summary: the digest, the action per cluster, the id of the rollout (empty when
        no cluster was outdated), the seconds of each phase.

        Raises:
            RayfleetError: the first failure, with the next command.
        """
        published = self._pipeline().release()
        published.require()
        with self.console.phase("configs"):
            self._step("invoke update-configs", self._configs)
        with self.console.phase("cleanup policies"):
            self._step("invoke registry.cleanup", self._cleanup)
        # No phase around it: a rollout has a moving table of its own.
        begun = time.monotonic()
        plan = run_restart(self.project, self.fleet, self.console, self._wish(self._clusters()))
        self.console.phases.append(("clusters", time.monotonic() - begun))
        return {
            "digest": published.digest,
            "tag": published.tag,
            "pinned": published.pinned,
            "clusters": {name: _action(plan, name) for name in self._names()},
            "rollout": plan.id if plan.targets else "",
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
        report = self._policies(dry_run=False)
        report.raise_failures(strict=False)
        for each in report.not_asked():
            # The restart that follows may be what mends it.
            self.console.say(f"{each.error}\n  afterwards: invoke registry.cleanup")

    def _policies(self, *, dry_run: bool) -> CleanupReport:
        from rayfleet.registry.cleanup import set_cleanup_policies
        from rayfleet.rollout.uses.collect import images_in_use

        # A rehearsal that somebody began is not ended by a release.
        return set_cleanup_policies(
            self.fleet,
            console=self.console,
            uses=images_in_use(self.project, self.fleet),
            dry_run=dry_run,
            rehearse=None,
        )

    def _names(self) -> list[str]:
        return [cluster.name for cluster in self._clusters()]

    def _wish(self, clusters: Sequence[Cluster]) -> Restart:
        return Restart(
            clusters=clusters,
            options=replace(self.options.rollout, only_outdated=True),
            command=self.options.command(),
            yes=self.options.yes,
        )

    def _plan_if_changed(self) -> Plan | None:
        """The plan for the clusters that have a config, None when there is none of them."""
        known = [c for c in self._clusters() if self.fleet.config_path(c).is_file()]
        if not known:
            return None
        wish = self._wish(known)
        return plan_restart(self.project, self.fleet, self.console, wish, image=TO_BE_BUILT).plan

    def _step(self, command: str, work: Callable[[], object]) -> None:
        """Do one step; a failure that names no next command gets the step's own."""
        try:
            work()
        except RayfleetError as error:
            if not error.next_step:
                error.next_step = f"{command}, then {self.options.command()}"
                error.message = error.text()
            raise


def _action(plan: Plan, name: str) -> str:
    target = plan.targets.get(name)
    return target.change.value if target is not None else "nothing"


def _target_json(plan: Plan | None, name: str) -> dict[str, object]:
    target = plan.targets.get(name) if plan is not None else None
    return {
        "cluster": name,
        "action_if_changed": (target.change if target else Change.START).value,
        "why": target.why if target else FRESH,
        "running_jobs": [
            {"id": job.id, "owner": job.owner, "entrypoint": job.entrypoint}
            for job in (target.jobs if target else ())
        ],
        "jobs_problem": target.jobs_problem if target else "",
    }
