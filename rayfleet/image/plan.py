"""What a publish will do, as plain data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Protocol, Self

from rayfleet.console import Console
from rayfleet.errors import PrerequisiteMissing, ToolFailed, UsageError
from rayfleet.fleet.model import ImageFamily
from rayfleet.fleet.pins import TAG
from rayfleet.image import labels
from rayfleet.image.build.checkout import Revision
from rayfleet.image.references import MOVING_TAGS

if TYPE_CHECKING:
    from rayfleet.image.layers.collect import LocalImage

SHOWN_FILES = 20


class Images(Protocol):
    """What is asked of the engine."""

    def look_up(self, name: str) -> LocalImage:
        """The image behind a name or ID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """One build and where it goes.

    ``files`` are the build's files, relative to the project. ``tags`` are in the order of
    their upload, the moving ``latest`` last. ``destinations`` maps a region to
    ``host/project/repository/name``. ``changed`` is empty unless uncommitted changes go in.
    """

    family: str
    image: str
    base_image: str
    dockerfile: str
    files: tuple[str, ...]
    commit: str
    built: date
    tags: tuple[str, ...]
    destinations: Mapping[str, str]
    changed: tuple[str, ...] = ()

    @property
    def pin_tag(self) -> str:
        """The tag that LATEST names: the short commit, which says what is inside."""
        return self.tags[0]

    @property
    def local_repository(self) -> str:
        """What the built image is called in the engine."""
        return f"rayfleet/{self.image}"

    @property
    def command(self) -> str:
        """What an operator types to carry the plan out."""
        return task_command("cluster-docker", self.family)

    def labels(self) -> dict[str, str]:
        """The image's labels, by the keys of the OCI image specification (annotations.md)."""
        return {
            labels.TITLE: self.image,
            labels.VERSION: self.pin_tag,
            labels.REVISION: self.commit,
            labels.CREATED: f"{self.built.isoformat()}T00:00:00Z",
            labels.BASE: self.base_image,
        }

    def arguments(self) -> dict[str, str]:
        """The Dockerfile's build arguments."""
        return {
            "BASE_IMAGE": self.base_image,
            "IMAGE_TAG": self.pin_tag,
            "IMAGE_COMMIT": self.commit,
            "IMAGE_DATE": self.built.isoformat(),
        }

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the plan."""
        if as_json:
            console.json(self.as_json())
            return
        uncommitted = f" and {len(self.changed)} uncommitted changes" if self.changed else ""
        console.table(
            ("what", "value"),
            [
                ("image", f"{self.image} (family {self.family})"),
                ("dockerfile", f"{self.dockerfile} on {self.base_image}"),
                ("context", f"{len(self.files)} files"),
                ("commit", self.commit + uncommitted),
                ("date", self.built.isoformat()),
                ("tags", ", ".join(self.tags)),
                ("pin", f"{self.pin_tag}, once every region has it"),
                *self.destinations.items(),
            ],
        )

    def as_json(self) -> dict[str, object]:
        """The plan as ``--json`` prints it."""
        return {
            "family": self.family,
            "image": self.image,
            "base_image": self.base_image,
            "dockerfile": self.dockerfile,
            "files": len(self.files),
            "commit": self.commit,
            "date": self.built.isoformat(),
            "tags": list(self.tags),
            "destinations": dict(self.destinations),
            "uncommitted": list(self.changed),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """An image of the engine, and what becomes of it.

    ``name`` is what people call it; ``wanted`` is what the engine is asked for: a name or an ID,
    empty when there is nothing yet. ``pin_tag`` is what LATEST will name, empty for no pin.
    ``commit`` is empty when the image itself has to say it. ``command`` does the same again;
    ``missing`` makes or finds the image.
    """

    name: str
    wanted: str
    tags: tuple[str, ...]
    pin_tag: str
    command: str
    commit: str = ""
    missing: str = ""

    @classmethod
    def of_build(cls, plan: BuildPlan, image_id: str, *, command: str, pin: bool = True) -> Self:
        """What a build made of ``plan``: the image ``image_id``, empty when there was no build.

        By its ID, because another checkout on the same engine gives its image the same name.
        """
        return cls(
            name=f"{plan.local_repository}:{plan.pin_tag}",
            wanted=image_id,
            tags=plan.tags,
            pin_tag=plan.pin_tag if pin else "",
            command=command + ("" if pin else " --no-pin"),
            commit=plan.commit,
            missing=task_command("image.build", plan.family),
        )

    @classmethod
    def of_name(cls, name: str, tags: Sequence[str], *, family: str, pin: bool) -> Self:
        """Any image of the engine; the first tag that stays where it is becomes the pin.

        Raises:
            UsageError: no tag, a malformed one, or none that a pin could name.
        """
        command = " ".join(
            [task_command("image.publish", family), f"--ref {name}"]
            + [f"--tag {tag}" for tag in tags]
            + ([] if pin else ["--no-pin"])
        )
        wrong = [tag for tag in tags if not TAG.fullmatch(tag)]
        if wrong or not tags:
            raise UsageError(
                f"{wrong[0]!r} is no tag" if wrong else f"{name} is to be published under no tag",
                why="letters, digits, '.', '_' and '-', at most 128",
                next_step=f"{task_command('image.publish', family)} --ref {name} --tag TAG",
            )
        fixed = next((tag for tag in tags if tag not in MOVING_TAGS), "")
        if pin and not fixed:
            raise UsageError(
                f"{name} cannot be pinned without a tag that stays",
                why="clusters name what they run by a fixed tag and its digest",
                next_step=f"{command} --tag TAG (or --no-pin)",
            )
        return cls(
            name=name,
            wanted=name,
            tags=tuple(dict.fromkeys(tags)),
            pin_tag=fixed if pin else "",
            command=command,
            missing="docker image ls",
        )

    def find(self, engine: Images) -> LocalImage:
        """The image in the engine.

        Raises:
            PrerequisiteMissing: it is not there, or no engine answers.
        """
        if not self.wanted:
            raise PrerequisiteMissing(
                f"this checkout has not built {self.name}",
                why="its state folder records no build of what is checked out",
                next_step=self.missing,
            )
        try:
            return engine.look_up(self.wanted)
        except ToolFailed as error:
            known = "" if self.wanted == self.name else f" ({self.wanted})"
            raise PrerequisiteMissing(
                f"the engine has no image {self.name}{known}",
                why="nothing there has that name or ID",
                next_step=self.missing,
            ) from error


def task_command(task: str, family: str) -> str:
    """What an operator types to run ``task`` for an image family."""
    return f"invoke {task}" + (f" --image {family}" if family != "cluster" else "")


def plan_build(
    family: ImageFamily,
    revision: Revision,
    *,
    files: Sequence[str],
    today: date,
    destinations: Mapping[str, str],
    base_image: str = "",
) -> BuildPlan:
    """Decide the tags of a build of ``family`` at ``revision`` on ``today`` (UTC).

    ``base_image`` is the reference of what it is built on, where the family does not say it.
    """
    suffix = "-dirty" if revision.changed else ""
    tags = (f"{revision.short}{suffix}", f"{today:%Y%m%d}{suffix}", "latest")
    return BuildPlan(
        family=family.family,
        image=family.name,
        base_image=base_image or family.base_image,
        dockerfile=family.dockerfile,
        files=tuple(files),
        commit=revision.commit,
        built=today,
        tags=tags,
        destinations=dict(destinations),
        changed=revision.changed,
    )


def refuse_dirty(plan: BuildPlan, *, allow: bool, command: str = "") -> None:
    """Refuse a plan with uncommitted changes unless they are allowed (to ``command``).

    Raises:
        UsageError: there are some, and they are not.
    """
    if not plan.changed or allow:
        return
    raise UsageError(
        f"the build context of image {plan.family!r} has uncommitted changes",
        why=_listed(plan.changed),
        next_step=f"commit them, or run: {command or plan.command} --allow-dirty",
    )


def refuse_changed(
    plan: BuildPlan, now: Revision, copied: Sequence[str], *, command: str = ""
) -> None:
    """Refuse a checkout that is not any more what ``plan`` was made from.

    ``now`` is what git says once the files are copied; ``copied`` are the copies that are not as
    committed, which only a plan with uncommitted changes may have. ``command`` does it again.

    Raises:
        UsageError: a commit was checked out, or files were edited, while they were copied.
    """
    changed = set(plan.changed) ^ set(now.changed)
    changed |= set(copied) if not plan.changed else set()
    if now.commit == plan.commit and not changed:
        return
    moved = [f"{now.short} is checked out now, and not {plan.commit[: len(now.short)]}"]
    raise UsageError(
        f"the checkout of image {plan.family!r} changed while its files were copied",
        why=_listed([*(moved if now.commit != plan.commit else ()), *sorted(changed)]),
        next_step=command or plan.command,
    )


def _listed(lines: Sequence[str]) -> str:
    shown = list(lines[:SHOWN_FILES])
    if len(lines) > SHOWN_FILES:
        shown.append(f"and {len(lines) - SHOWN_FILES} more")
    return "\n    ".join(["", *shown])
