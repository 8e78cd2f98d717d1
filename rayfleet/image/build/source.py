"""What an image family is built from: files of the checkout, and the fleet file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rayfleet.fleet.model import Fleet, ImageFamily
from rayfleet.fleet.references import base_reference
from rayfleet.image.build.checkout import Checkout
from rayfleet.image.build.context import exported_context, machine_build_config
from rayfleet.image.plan import BuildPlan, plan_build, refuse_changed
from rayfleet.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files of an image family of ``fleet`` in the checkout of ``project``."""

    project: Project
    fleet: Fleet
    family: ImageFamily

    def plan(self, *, today: date, destinations: Mapping[str, str]) -> BuildPlan:
        """What a build of it would be now.

        Raises:
            UsageError: the project is not a git checkout, or has no such files; the image that
                it is built on has no pin.
            PrerequisiteMissing: the sandbox with that image is not up.
        """
        return plan_build(
            self.family,
            self._checkout.revision(self._watched),
            files=self._checkout.files(self._paths),
            today=today,
            destinations=destinations,
            base_image=base_reference(self.fleet, self.family.family),
        )

    @contextmanager
    def copied(self, plan: BuildPlan, *, again: str) -> Iterator[Path]:
        """The build context of ``plan`` as a folder for the block; ``again`` is the command.

        Git is asked once more when the files are copied: of the copy, and of the checkout.

        Raises:
            UsageError: the checkout is not what the plan was made from.
            PrerequisiteMissing: the copy cannot be written.
        """
        checkout = self._checkout
        with exported_context(
            self.project.root,
            plan.files,
            machine_build_config(os.environ),
            folder=self.project.state / "build" / plan.family,
            prefix=checkout.prefix,
        ) as context:
            copied = () if plan.changed else checkout.changed_in(context, self._paths)
            refuse_changed(plan, checkout.revision(self._watched), copied, command=again)
            yield context

    @property
    def _checkout(self) -> Checkout:
        return Checkout(root=self.project.root)

    @property
    def _paths(self) -> tuple[str, ...]:
        """What the build sees."""
        return (self.family.dockerfile, *self.family.context)

    @property
    def _watched(self) -> tuple[str, ...]:
        """What must be committed: the same, and of the checkout the fleet file, and the pin file
        if a pin says what the image is built on."""
        root, files = self.project.root.resolve(), [self.project.fleet_file]
        if self.family.base_image in self.fleet.images:
            files.append(self.fleet.outputs.pins)
        ours = (file.resolve() for file in files)
        return (*self._paths, *(str(f.relative_to(root)) for f in ours if f.is_relative_to(root)))
