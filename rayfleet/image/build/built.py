"""What a build made, and the record of it: how a later publish finds the image again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rayfleet.bars import readable
from rayfleet.console import Console
from rayfleet.files import write_atomically
from rayfleet.image.layers.collect import LocalImage
from rayfleet.image.plan import BuildPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An ``image`` in the engine, its ``names`` there, and the seconds that the build took."""

    family: str
    image: LocalImage
    names: tuple[str, ...]
    commit: str
    seconds: float

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            console.json(
                {
                    "family": self.family,
                    "image_id": self.image.id,
                    "names": list(self.names),
                    "size": self.image.size,
                    "commit": self.commit,
                    "seconds": round(self.seconds, 1),
                }
            )
            return
        rows = [
            ("image", self.image.id),
            ("names", ", ".join(self.names)),
            ("size", readable(self.image.size)),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        console.table(("what", "value"), rows)


def record_built(state: Path, plan: BuildPlan, image_id: str) -> None:
    """Record in the state folder that the image ``image_id`` is what ``plan`` made.

    Raises:
        PrerequisiteMissing: the state folder cannot be written.
    """
    record = {"tag": plan.pin_tag, "commit": plan.commit, "image_id": image_id}
    write_atomically(_path(state, plan.family), json.dumps(record, indent=2) + "\n")


def built_id(state: Path, plan: BuildPlan) -> str:
    """The ID of the image that the last build made, if ``plan`` has the same commit and tag;
    empty otherwise."""
    try:
        record = json.loads(_path(state, plan.family).read_bytes())
        known = (record["tag"], record["commit"]) == (plan.pin_tag, plan.commit)
        return str(record["image_id"]) if known else ""
    except (OSError, ValueError, LookupError, TypeError):
        return ""  # whatever cannot be read is built again


def _path(state: Path, family: str) -> Path:
    return state / "built" / f"{family}.json"
