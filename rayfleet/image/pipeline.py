"""Build, publish, verify, pin: the whole way of an image, each step safe to repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from rayfleet.console import Console
from rayfleet.errors import PrerequisiteMissing, RayfleetError, UsageError
from rayfleet.fleet.model import Fleet, ImageFamily, Pin
from rayfleet.fleet.pins import write_pin
from rayfleet.fleet.references import image_repository
from rayfleet.image.build.built import BuiltImage, built_id, record_built
from rayfleet.image.build.source import Source
from rayfleet.image.engine import ImageEngine
from rayfleet.image.layers.blobs import BlobCache
from rayfleet.image.layers.collect import LocalImage
from rayfleet.image.oci.credentials import login_for
from rayfleet.image.oci.limits import Limits
from rayfleet.image.oci.registries import Registries
from rayfleet.image.plan import (
    BuildPlan,
    Selection,
    refuse_dirty,
    task_command,
)
from rayfleet.image.publish.publication import Publication
from rayfleet.image.publish.published import Published
from rayfleet.image.publish.publisher import Publisher
from rayfleet.image.publish.standalone import check_registries
from rayfleet.image.publish.survey import PublishPlan, survey
from rayfleet.image.references import check_family
from rayfleet.image.repositories import (
    EnsureRepositories,
    ProtectPin,
    ensure_repositories,
    protect_pin,
)
from rayfleet.locks import exclusive
from rayfleet.project import Project

UPLOADS_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """The steps from a checkout to a pin of the image ``family``.

    ``push_limit`` blobs are sent at a time, to all registries together.
    """

    project: Project
    fleet: Fleet
    console: Console
    family: str = "cluster"
    allow_dirty: bool = False
    push_limit: int = UPLOADS_AT_ONCE
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ensure_repositories: EnsureRepositories = ensure_repositories
    protect_pin: ProtectPin = protect_pin

    def plan(self) -> BuildPlan:
        """What :meth:`release` would build now; changes nothing.

        Raises:
            UsageError: the fleet has no such image, or the project is not a git checkout.
            PrerequisiteMissing: the sandbox with the registries is not up.
        """
        return self._source.plan(today=self.now().date(), destinations=self._destinations())

    def show_plan(self, *, as_json: bool) -> None:
        """Print what :meth:`release` would build, and what each region lacks of it; only read.

        An image that is not built yet is no error, nor is a registry that is down.

        Raises:
            UsageError: as :meth:`plan`.
            PrerequisiteMissing: as :meth:`plan`.
        """
        plan = self.plan()
        built = built_id(self.project.state, plan)
        selection = Selection.of_build(plan, built, command=plan.command)
        lacking = self.survey(selection, built=False)
        if as_json:
            self.console.json(plan.as_json() | lacking.as_json())
            return
        plan.show(self.console, as_json=False)
        lacking.show(self.console)

    def selection(self, *, name: str, tags: Sequence[str], pin: bool) -> Selection:
        """What to publish: the engine's image ``name`` under ``tags``; without a name what was
        built of what is checked out.

        Raises:
            UsageError: tags without a name, or a name without tags; uncommitted changes that
                are not allowed; no such image family.
        """
        check_family(self.family, self.fleet)
        if name:
            return Selection.of_name(name, tags, family=self.family, pin=pin)
        command = task_command("image.publish", self.family)
        if tags:
            raise UsageError(
                "--tag goes with --ref",
                why="what was built is called after its commit and its date",
                next_step=f"{command} (or with --ref NAME as well)",
            )
        plan = self.plan()
        refuse_dirty(plan, allow=self.allow_dirty, command=command)
        built = built_id(self.project.state, plan)
        return Selection.of_build(plan, built, command=command, pin=pin)

    def survey(self, selection: Selection, *, built: bool = True) -> PublishPlan:
        """What each region lacks of an image; only reads. It need not exist unless ``built``.

        Raises:
            PrerequisiteMissing: the engine does not have the image.
        """
        with self._registries() as registries, self._cache() as cache:
            try:
                image = selection.find(self._engine())
            except RayfleetError:
                if built:
                    raise
                image = None
            return survey(
                image,
                self._destinations(),
                selection.tags,
                registries=registries,
                cache=cache,
                compression=self._image_family().compression,
            )

    def build(self) -> BuiltImage:
        """Build the image and do nothing else.

        Raises:
            UsageError: uncommitted changes that are not allowed, or no such image family.
            PrerequisiteMissing: no engine, no base image, a full disk.
            ToolFailed: the build failed.
            Locked: another run builds or publishes the same image.
        """
        with self._locked():
            plan = self.plan()
            command = task_command("image.build", self.family)
            refuse_dirty(plan, allow=self.allow_dirty, command=command)
            engine = self._engine()
            with self.console.phase("check"):
                self._check_engine(engine, plan)
            return self._build(engine, plan, command)

    def release(self) -> Published:
        """Build the image, put it into every region and, last of all, pin it.

        What fails in a region after the build is in the result; nothing is pinned then.

        Raises:
            UsageError: uncommitted changes that are not allowed, or no such image.
            PrerequisiteMissing: no engine, no base image, no credentials, a full disk.
            Unreachable: a registry is down; found before the build.
            ToolFailed: the build failed, or a registry refuses the credentials.
            Locked: another publish of the same image is running.
        """
        first_phase = len(self.console.phases)
        with self._locked(), self._registries() as registries:
            plan = self.plan()
            refuse_dirty(plan, allow=self.allow_dirty)
            engine = self._engine()
            with self.console.phase("check"):
                self._check_engine(engine, plan)
                check_registries(plan.destinations, registries, next_step=self._mend)
            built = self._build(engine, plan, plan.command)
            selection = Selection.of_build(plan, built.image.id, command=plan.command)
            return self._publish(selection, built.image, engine, registries, first_phase)

    def publish(self, selection: Selection) -> Published:
        """Put an image that the engine has into every region and, if it says so, pin it.

        Raises:
            PrerequisiteMissing: the engine does not have it; no credentials; a full disk.
            Unreachable: a registry is down; nothing was changed.
            ToolFailed: a registry refuses the credentials.
            Locked: another publish of the same image is running.
        """
        self._image_family()
        first_phase = len(self.console.phases)
        with self._locked(), self._registries() as registries:
            engine = self._engine()
            with self.console.phase("check"):
                image = selection.find(engine)
                destinations = self._destinations()
                check_registries(destinations, registries, next_step=self._mend)
            return self._publish(selection, image, engine, registries, first_phase)

    def _check_engine(self, engine: ImageEngine, plan: BuildPlan) -> None:
        """Find what would stop the run before minutes of building."""
        if plan.changed:
            self.console.say(
                f"{len(plan.changed)} uncommitted changes go into the image; "
                f"its tag says so: {plan.pin_tag}"
            )
        engine.check()
        # Another base is another family's image, which the engine pulls.
        made_here = self.fleet.is_sandbox and plan.base_image == self._image_family().base_image
        if made_here and not engine.has_image(plan.base_image):
            raise PrerequisiteMissing(
                f"the engine has no base image {plan.base_image}",
                why="the sandbox makes it when it comes up",
                next_step="invoke sandbox.up",
            )

    def _build(self, engine: ImageEngine, plan: BuildPlan, command: str) -> BuiltImage:
        again = command + (" --allow-dirty" if self.allow_dirty else "")
        started = time.monotonic()
        with self.console.phase("build"), self._source.copied(plan, again=again) as context:
            image = engine.build(
                plan,
                context,
                log=self.project.logs(f"build-{plan.family}"),
                on_step=self.console.event,
            )
        record_built(self.project.state, plan, image)
        return BuiltImage(
            family=plan.family,
            image=engine.look_up(image),
            names=tuple(f"{plan.local_repository}:{tag}" for tag in (plan.pin_tag, "latest")),
            commit=plan.commit,
            seconds=time.monotonic() - started,
        )

    def _publish(
        self,
        selection: Selection,
        image: LocalImage,
        engine: ImageEngine,
        registries: Registries,
        first_phase: int,
    ) -> Published:
        started = self.now()
        family = self._image_family()
        destinations = self._destinations()
        with self.console.phase("repositories"):
            self.ensure_repositories(self.fleet, family, self.console)
        with self._cache() as cache:
            publication = Publisher(
                engine=engine,
                cache=cache,
                registries=registries,
                compression=family.compression,
                console=self.console,
            ).publish(image, destinations, selection.tags, name=selection.name)
        return Published(
            family=self.family,
            tag=selection.pin_tag or selection.tags[0],
            commit=selection.commit or publication.revision,
            pinned=self._pin(selection, publication, started),
            seconds=dict(self.console.phases[first_phase:]),
            publication=publication,
            command=selection.command,
        )

    def _pin(self, selection: Selection, publication: Publication, when: datetime) -> bool:
        """Make the image LATEST if every region has it; False if it was already."""
        if not publication.complete or not selection.pin_tag:
            return False
        pin = Pin(
            tag=selection.pin_tag,
            digest=publication.digest,
            published=when.isoformat(timespec="seconds"),
            commit=selection.commit or publication.revision,
        )
        # First, so that there is no moment at which a sweep could take what is pinned.
        self.protect_pin(self.fleet, self.family, pin, self.console)
        path = self.fleet.outputs.pins
        changed = write_pin(path, self.family, pin)
        word = "pinned" if changed else "already pinned"
        self.console.say(f"{word}: {self.family} {pin.reference} in {self.project.shown(path)}")
        return changed

    @property
    def _source(self) -> Source:
        return Source(project=self.project, fleet=self.fleet, family=self._image_family())

    def _destinations(self) -> dict[str, str]:
        """``host/project/repository/name`` by region."""
        return {
            region: image_repository(self.fleet, self.family, region)
            for region in self.fleet.registries.regions
        }

    def _image_family(self) -> ImageFamily:
        return self.fleet.images[check_family(self.family, self.fleet)]

    def _engine(self) -> ImageEngine:
        return ImageEngine(next_step=self._mend)

    def _locked(self) -> AbstractContextManager[None]:
        return exclusive(self.project.state, f"publish-{self.family}")

    def _cache(self) -> BlobCache:
        return BlobCache(self.project.state / "blobs")

    def _registries(self) -> Registries:
        if self.push_limit < 1:
            raise UsageError(f"--push-limit is {self.push_limit}", why="it must be 1 or more")
        return Registries(
            lambda host: login_for(host, self.fleet), limits=Limits(overall=self.push_limit)
        )

    @property
    def _mend(self) -> str:
        return "invoke sandbox.up" if self.fleet.is_sandbox else "invoke doctor"
