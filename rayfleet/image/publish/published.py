"""What a publish prints when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rayfleet.console import Console
from rayfleet.image.publish.publication import Publication, rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A publish of an image family. ``pinned`` is False when LATEST was this image already, when
    no pin was asked for, and when a region failed.

    ``tag`` is the one that a pin names; ``seconds`` has one entry per phase. ``command`` is
    what does the same again.
    """

    family: str
    tag: str
    commit: str
    pinned: bool
    seconds: Mapping[str, float]
    publication: Publication
    command: str

    @property
    def digest(self) -> str:
        """What the tags name; empty if no region got that far."""
        return self.publication.digest

    @property
    def tags(self) -> tuple[str, ...]:
        """What the image is called in every region."""
        return self.publication.tags

    def conclude(self, console: Console, *, as_json: bool) -> None:
        """Print the result, as JSON for a failure as well.

        Raises:
            PartialFailure: some regions failed.
        """
        if as_json:
            console.json(self.as_json())
        self.require()
        if not as_json:
            self.publication.show(console, as_json=False)

    def require(self) -> None:
        """Return if every region has the image.

        Raises:
            PartialFailure: some do not.
        """
        self.publication.require(
            next_step=f"mend the cause, then run: {self.command} (it does what is missing)"
        )

    def as_json(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        return {
            "family": self.family,
            "tag": self.tag,
            "commit": self.commit,
            "pinned": self.pinned,
            **self.publication.as_json(),
            "seconds": rounded({**self.seconds, **self.publication.seconds}),
        }
