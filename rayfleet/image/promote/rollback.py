"""Go back to an earlier pin: LATEST of an image, in the pin file and in every registry."""

from __future__ import annotations

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.pins import read_histories
from rayfleet.image.history import read_history
from rayfleet.image.promote.promotion import Order
from rayfleet.image.references import Reference, check_family

MOVED_TAG = "latest"


def find_rollback(fleet: Fleet, *, family: str = "cluster", to: str = "") -> Order:
    """What a rollback of ``family`` does: ``latest`` and the pin go back to ``to``, a tag or a
    digest that was pinned once; without it to the previous pin. Fixed tags stay.

    Raises:
        UsageError: there is nothing to go back to, or ``to`` was never pinned.
    """
    pin = _target(fleet, check_family(family, fleet), to)
    flags = [f"--image {family}"] if family != "cluster" else []
    flags += [f"--to {to}"] if to else []
    return Order(
        source=Reference(family=family, tag=pin.tag, digest=pin.digest),
        family=family,
        tags=(MOVED_TAG,),
        command=" ".join(["invoke image.rollback", *flags]),
        pin=pin,
        strict=True,
    )


def _target(fleet: Fleet, family: str, to: str) -> Pin:
    if to:
        return read_history(fleet, family).find(to)
    history = read_histories(fleet.outputs.pins).get(family)
    if history is not None and history.previous is not None:
        return history.previous
    raise UsageError(
        f"there is no pin of {family!r} before the current one",
        why=f"{fleet.outputs.pins} has none",
        next_step=f"invoke image.rollback --image {family} --to TAG "
        f"(invoke image.history --image {family} lists them)",
    )
