"""A promotion as values: what is asked for, what will be done, what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rayfleet.bars import readable
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable, UsageError
from rayfleet.fleet.model import Pin
from rayfleet.image.fanout import Outcome, failure, failure_lines, region_lines
from rayfleet.image.references import MOVING_TAGS, Reference, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an operator asks for: ``source`` under ``tags`` of ``family``, and ``pin``ned.

    The pin's empty fields are filled in from the image. ``strict`` changes nothing unless
    every region answers, and always asks. ``command`` is what was typed.
    """

    source: Reference
    family: str
    tags: tuple[str, ...]
    command: str
    pin: Pin | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a region holds: the digest of the source, and of each wanted tag (or nothing)."""

    digest: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A promotion of ``digest`` and what every region holds before it.

    ``sources`` and ``destinations`` map a region to ``host/path/of/repository``. ``blobs`` of
    ``size`` bytes are mounted where they are not there yet.
    """

    order: Order
    digest: str
    sources: Mapping[str, str]
    destinations: Mapping[str, str]
    regions: tuple[Outcome[Held], ...]
    blobs: int
    size: int
    pin: Pin | None

    @property
    def answering(self) -> dict[str, Held]:
        """What is held, by region, where the registry answers."""
        return {each.region: each.value for each in self.regions if each.value is not None}

    @property
    def moving(self) -> tuple[str, ...]:
        """The tags that name another image somewhere, and ``latest``: they go last."""
        moved = {tag for _, tag, _ in self.moves()} | MOVING_TAGS
        return tuple(tag for tag in self.order.tags if tag in moved)

    @property
    def fixed(self) -> tuple[str, ...]:
        """All other tags."""
        return tuple(tag for tag in self.order.tags if tag not in self.moving)

    def moves(self) -> Iterator[tuple[str, str, str]]:
        """Each region and tag that names another image now, and that image's digest."""
        for region, held in self.answering.items():
            for tag, digest in held.tags.items():
                if digest not in {"", self.digest}:
                    yield region, tag, digest

    @property
    def question(self) -> str:
        """What to ask before it is done; empty if nothing has to be."""
        moved = sorted({tag for _, tag, _ in self.moves()})
        if not moved and not self.order.strict:
            return ""
        name = self.order.source.tag or self.pin.tag if self.pin else self.order.source.tag
        image = f"{name} ({shortened(self.digest)})" if name else shortened(self.digest)
        if not moved:
            return f"pin {image} of {self.order.family}?"
        regions = count_regions(len({region for region, _, _ in self.moves()}))
        pin = " and pin it" if self.pin is not None else ""
        return f"move {', '.join(moved)} of {self.order.family} in {regions} to {image}{pin}?"

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the plan."""
        if as_json:
            console.json(self.as_json())
            return
        same = self.sources == self.destinations
        blobs = "same repository" if same else f"{self.blobs} ({readable(self.size)}) to mount"
        rows = [
            ("image", str(replace(self.order.source, digest=""))),
            ("digest", self.digest),
            ("to", f"{self.order.family}: {', '.join(self.order.tags)}"),
            ("blobs", blobs),
            ("pin", f"{self.order.family} {self.pin.tag}" if self.pin else "stays"),
        ]
        console.table(("what", "value"), rows)
        console.data("")
        console.table(("region", "tag", "change"), list(self._changes()))

    def _changes(self) -> Iterator[tuple[str, str, str]]:
        for each in self.regions:
            if each.value is None:
                yield each.region, "", failure(each.error)
                continue
            for tag in self.order.tags:
                yield each.region, tag, self._change(each.value.tags[tag])

    def _change(self, digest: str) -> str:
        if digest == self.digest:
            return "none"
        return f"moves from {shortened(digest)}" if digest else "new"

    def as_json(self) -> dict[str, object]:
        """The plan as ``--json`` prints it."""
        return {
            "source": str(self.order.source),
            "digest": self.digest,
            "family": self.order.family,
            "tags": list(self.order.tags),
            "blobs": self.blobs,
            "size": self.size,
            "pin": asdict(self.pin) if self.pin is not None else None,
            "regions": {
                each.region: {
                    "source": self.sources[each.region],
                    "image": self.destinations[each.region],
                    "tags": dict(each.value.tags) if each.value is not None else None,
                    "error": failure(each.error) if each.error is not None else None,
                }
                for each in self.regions
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """One region: how many blobs were mounted, and the tags that had to be set."""

    region: str
    mounted: int = 0
    tags_set: tuple[str, ...] = ()
    error: RayfleetError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A promotion that was carried out, as far as it went.

    ``moved`` says whether the moving tags' turn came, ``pinned`` whether a pin was changed.
    """

    plan: Plan
    regions: tuple[Promoted, ...]
    moved: bool
    pinned: bool

    @property
    def complete(self) -> bool:
        """True when every region has the image under every tag."""
        return all(each.error is None for each in self.regions)

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            console.json(self.as_json())
            return
        console.table(("region", "image", "result"), [self._row(each) for each in self.regions])
        if self.complete:
            console.say(f"{', '.join(self.plan.order.tags)}: {self.plan.digest}")

    def _row(self, each: Promoted) -> tuple[str, ...]:
        done = [f"{each.mounted} blobs mounted"] if each.mounted else []
        done += [f"{', '.join(each.tags_set)} set"] if each.tags_set else []
        if each.error is not None:
            done.append(failure(each.error))
        return each.region, self.plan.destinations[each.region], "; ".join(done) or "was so already"

    def as_json(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        return {
            "digest": self.plan.digest,
            "family": self.plan.order.family,
            "tags": list(self.plan.order.tags),
            "complete": self.complete,
            "pinned": self.pinned,
            "regions": {
                each.region: {
                    "image": self.plan.destinations[each.region],
                    "blobs_mounted": each.mounted,
                    "tags_set": list(each.tags_set),
                    "error": failure(each.error) if each.error is not None else None,
                }
                for each in self.regions
            },
        }

    def require(self) -> None:
        """Return if every region has the image under every tag.

        Raises:
            PartialFailure: some have not; it has a line for each of them.
        """
        failed = [each for each in self.regions if each.error is not None]
        if not failed:
            return
        lines = region_lines((each.region, failure(each.error)) for each in failed)
        raise PartialFailure(
            f"{len(failed)} of {count_regions(len(self.regions))} failed{self._left()}",
            why="\n  ".join(["", *lines]),
            next_step=f"mend the cause, then: {self.plan.order.command} (it does what is missing)",
        )

    def _left(self) -> str:
        """What a failure has kept as it was."""
        kept = [] if self.moved else list(self.plan.moving)
        kept += ["the pin"] if self.plan.pin is not None else []
        return (
            f"; {' and '.join(kept)} stayed as {'it was' if len(kept) == 1 else 'they were'}"
            if kept
            else ""
        )


def one_digest(order: Order, outcomes: Sequence[Outcome[Held]]) -> str:
    """The digest that every region holds which answers.

    Raises:
        UsageError: none holds the image.
        PartialFailure: they do not all hold the same, or all must answer and one does not.
        RayfleetError: what stopped every region.
    """
    found = [each.value.digest for each in outcomes if each.value is not None]
    errors = [each.error for each in outcomes if each.error is not None]
    held, lacking = set(found) - {""}, "" in found
    if len(held) == 1 and not lacking and not (order.strict and errors):
        return held.pop()
    history = f"invoke image.history --image {order.source.family}"
    if not held and not errors:
        raise UsageError(f"no region has {order.source}", next_step=history)
    if not found and len({error.text() for error in errors}) == 1:
        raise errors[0]
    what, step = f"the regions do not all hold {order.source}", ""
    if len(held) > 1:
        step = f"name the digest that you mean, not the tag ({history})"
    elif held and lacking:
        step = f"choose one that every region has ({history}), or publish this one again"
    elif not lacking:
        what = f"{len(errors)} of {count_regions(len(outcomes))} could not be asked"
    mended = next((error.next_step for error in errors if error.next_step), "mend the cause")
    raise (PartialFailure if found else worst_kind(errors))(
        f"{what}; nothing was changed",
        why="\n  ".join(["", *failure_lines(outcomes, done=_held)]),
        next_step=step or f"{mended}, then: {order.command}",
    )


def worst_kind(errors: Sequence[RayfleetError]) -> type[RayfleetError]:
    """What several failures amount to: silence goes before refusals."""
    silent = any(isinstance(error, Unreachable) for error in errors)
    return Unreachable if silent else type(errors[0])


def _held(held: Held) -> str:
    return f"holds {held.digest}" if held.digest else "lacks it"


def count_regions(count: int) -> str:
    """``1 region``, ``2 regions``."""
    return f"{count} region" + ("s" if count != 1 else "")
