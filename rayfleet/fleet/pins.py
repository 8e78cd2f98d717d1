"""The pins: what LATEST of each image family means, in a file that only machines write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from rayfleet.errors import UsageError
from rayfleet.files import write_atomically
from rayfleet.fleet.model import RAY_VERSION, Pin
from rayfleet.locks import file_lock

BANNER = """\
# Written by `invoke cluster-docker`; do not edit. What LATEST of each image family is:
# `current` is what clusters are started with, `previous` is what a rollback goes back to.
"""
LOCK_SECONDS = 10.0
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinHistory:
    """LATEST of one family and the pin that it replaced."""

    current: Pin
    previous: Pin | None = None


def read_pins(path: Path) -> dict[str, Pin]:
    """LATEST of every family in the pin file; none if the file does not exist.

    Raises:
        UsageError: the file is not one that :func:`write_pin` wrote.
    """
    return {family: history.current for family, history in read_histories(path).items()}


def read_histories(path: Path) -> dict[str, PinHistory]:
    """Every family's pin and the one before it; none if the file does not exist.

    Raises:
        UsageError: the file is not one that :func:`write_pin` wrote.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(path, " ".join(str(error).split())) from error
    return parse_histories(text, path)


def parse_histories(text: str, path: Path) -> dict[str, PinHistory]:
    """What ``text``, a version of the pin file ``path``, says.

    Raises:
        UsageError: it is not what :func:`write_pin` writes.
    """
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _broken(path, " ".join(str(error).split())) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _broken(path, "it is not a mapping of image families")
    return {str(family): _history(path, str(family), entry) for family, entry in document.items()}


def write_pin(path: Path, family: str, pin: Pin, *, timeout: float = LOCK_SECONDS) -> bool:
    """Make ``pin`` LATEST of ``family``, and what it replaces the rollback target.

    Returns False, and leaves the file as it is, when tag and digest are pinned already. Another
    tag of the same digest replaces the pin but not the rollback target.

    Raises:
        Locked: another run holds the file for longer than ``timeout`` seconds.
        PrerequisiteMissing: the file cannot be written.
        UsageError: the file is not one that this function wrote.
    """
    with _locked(path, timeout):
        pins = read_histories(path)
        old = pins.get(family)
        if old is not None and (old.current.tag, old.current.digest) == (pin.tag, pin.digest):
            return False
        pins[family] = PinHistory(current=pin, previous=_replaced(old, pin))
        write_atomically(path, _text(pins))
    return True


def _replaced(old: PinHistory | None, pin: Pin) -> Pin | None:
    if old is None:
        return None
    same_image = old.current.digest and old.current.digest == pin.digest
    return old.previous if same_image else old.current


@contextmanager
def _locked(path: Path, timeout: float) -> Iterator[None]:
    guard = path.with_name(f".{path.name}.guard")
    with file_lock(guard, what=str(path), timeout=timeout):
        yield
        # filelock looks for this: who waits for a file that is gone starts over.
        guard.unlink(missing_ok=True)


def _text(pins: Mapping[str, PinHistory]) -> str:
    """Every value in quotes: a tag such as 12e4567 is a number to some YAML readers."""
    return BANNER + "".join(_lines(pins))


def _lines(pins: Mapping[str, PinHistory]) -> Iterator[str]:
    for family, history in sorted(pins.items()):
        yield f"{family}:\n"
        for slot, pin in (("current", history.current), ("previous", history.previous)):
            if pin is not None:
                yield f"  {slot}:\n"
                yield from (f"    {k}: {json.dumps(v)}\n" for k, v in asdict(pin).items() if v)


def _history(path: Path, family: str, entry: object) -> PinHistory:
    if not isinstance(entry, dict) or not set(entry) <= {"current", "previous"}:
        raise _broken(path, f"{family} must hold current and previous, and nothing else")
    if "current" not in entry:
        raise _broken(path, f"{family} has no current pin")
    previous = entry.get("previous")
    return PinHistory(
        current=_pin(path, family, entry["current"]),
        previous=_pin(path, family, previous) if previous is not None else None,
    )


def _pin(path: Path, family: str, entry: object) -> Pin:
    known = set(Pin.__dataclass_fields__)
    if not isinstance(entry, dict) or not set(entry) <= known:
        raise _broken(path, f"a pin of {family} must hold {', '.join(sorted(known))} only")
    if not all(isinstance(value, str) for value in entry.values()):
        raise _broken(path, f"a pin of {family} holds a value that is not text; quote it")
    pin = Pin(tag="", **entry) if "tag" not in entry else Pin(**entry)
    if not TAG.fullmatch(pin.tag):
        raise _broken(path, f"{family} has no usable tag ({pin.tag!r})")
    if pin.digest and not DIGEST.fullmatch(pin.digest):
        raise _broken(path, f"{family} has the digest {pin.digest!r}, which is not sha256:<64 hex>")
    if pin.ray and not RAY_VERSION.fullmatch(pin.ray):
        raise _broken(path, f"{family} has the Ray {pin.ray!r}, which is no version")
    return pin


def _broken(path: Path, why: str) -> UsageError:
    return UsageError(
        f"the pin file {path} is broken",
        why=why,
        next_step="bring it back from git, or delete it and run: invoke cluster-docker",
    )
