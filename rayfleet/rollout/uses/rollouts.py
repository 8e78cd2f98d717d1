"""Which images rollouts may still need: those that they bring, and those that they go back to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Fleet
from rayfleet.project import Project
from rayfleet.registry.uses import Kind, Unknown, Use, Uses
from rayfleet.rollout.journal.store import Rollout, Rollouts
from rayfleet.rollout.uses.text import digests_in, images_in

STAMP = "%Y%m%dT%H%M%SZ"


def rollout_uses(project: Project, fleet: Fleet, *, now: datetime, recent: timedelta) -> Uses:
    """What rollouts need that are not finished, or were begun less than ``recent`` ago.

    One that cannot be read counts as not finished; all that its files name is needed.
    """
    known: list[Use] = []
    unknown: list[Unknown] = []
    for rollout in Rollouts(project.state).all():
        if _begun(rollout) < now - recent and _finished(rollout):
            continue
        try:
            known.extend(_needs(rollout, fleet))
        except OSError as error:
            unknown.append(
                Unknown(
                    by=f"rollout {rollout.id}",
                    why=f"{error.filename} cannot be read: {error.strerror}",
                    next_step=f"invoke rollouts.show {rollout.id}",
                )
            )
    return Uses(known=tuple(dict.fromkeys(known)), unknown=tuple(unknown))


def _needs(rollout: Rollout, fleet: Fleet) -> Iterator[Use]:
    for folder, word in ((rollout.configs, "target"), (rollout.previous, "way back")):
        for path in sorted(folder.glob("*.yaml")):
            cluster = fleet.clusters.get(path.stem)
            yield from images_in(
                fleet,
                path.read_text(errors="replace"),
                by=f"the {word} of {path.stem} in rollout {rollout.id}",
                kind=Kind.ROLLOUT,
                region=cluster.region if cluster else "",
            )
    yield from _planned(rollout.folder / "plan.json", rollout, fleet)


def _planned(path: Path, rollout: Rollout, fleet: Fleet) -> Iterator[Use]:
    """The digests of the plan: a cluster may run an image whose config nobody has."""
    text = path.read_text(errors="replace")
    try:
        targets = rollout.plan.targets
    except RayfleetError:
        yield from digests_in(text, by=f"rollout {rollout.id}", kind=Kind.ROLLOUT)
        return
    for name, target in targets.items():
        region = target.region if target.region in fleet.registries.regions else ""
        for word, digest in (("way back", target.digest_now), ("target", target.digest_wanted)):
            by = f"the {word} of {name} in rollout {rollout.id}"
            yield from digests_in(digest, by=by, kind=Kind.ROLLOUT, region=region)


def _begun(rollout: Rollout) -> datetime:
    """By its id, which is there whatever its files say."""
    return datetime.strptime(rollout.id.partition("-")[0], STAMP).replace(tzinfo=UTC)


def _finished(rollout: Rollout) -> bool:
    try:
        return rollout.state().result is not None
    except (RayfleetError, OSError, ValueError):
        return False
