"""What an entrypoint reserves for itself on the one node that it runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rayfleet.arguments import parse_number
from rayfleet.errors import UsageError

SMALLEST = 0.0001
"""The smallest part of a resource that Ray counts (FixedPoint, Ray 2.60)."""

SIZES = {"": 1, "B": 1} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for end, base in (("", 1024), ("iB", 1024), ("B", 1000))
}

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([A-Za-z]*)")
_OPTION_OF = {"CPU": "--num-cpus", "GPU": "--num-gpus", "memory": "--memory"}
# Ray's own rules (label_utils.py, Ray 2.60), which it tells of only after an upload.
_WORD = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_LABEL = re.compile(rf"(?:[a-zA-Z0-9.-]{{1,253}}/)?{_WORD}")
_SELECTOR = re.compile(rf"!?(?:{_WORD}|in\({_WORD}(?:, ?{_WORD})*\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one node must have free for an entrypoint; nothing means: it runs on the head.

    ``memory`` is in bytes. ``resources`` are Ray's custom ones (``TPU`` is one of them).
    ``labels`` select the node: a value, ``!value``, ``in(a, b)`` or ``!in(a, b)`` for a key.
    """

    num_cpus: float = 0.0
    num_gpus: float = 0.0
    memory: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def amounts(self) -> Mapping[str, float]:
        """How much of each of Ray's resources, by Ray's name for it; zeros are left out."""
        found = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": self.memory}
        return {name: amount for name, amount in found.items() if amount} | dict(self.resources)

    @property
    def nothing(self) -> bool:
        """True when the entrypoint may run anywhere, which is the head."""
        return not (self.amounts or self.labels)

    def document(self) -> dict[str, object]:
        """The fields of ``POST /api/jobs/`` (Ray 2.60), without those that ask for nothing."""
        fields: dict[str, object] = {
            "entrypoint_num_cpus": self.num_cpus,
            "entrypoint_num_gpus": self.num_gpus,
            "entrypoint_memory": self.memory,
            "entrypoint_resources": dict(self.resources),
            "entrypoint_label_selector": dict(self.labels),
        }
        return {name: value for name, value in fields.items() if value}

    def text(self) -> str:
        """The needs in one line, ``CPU 2, memory 4.0 GiB, label tier=spot``."""
        parts = [amount_text(name, amount) for name, amount in self.amounts.items()]
        parts += [f"label {key}={value}" for key, value in self.labels.items()]
        return ", ".join(parts) or "nothing"


def parse_needs(
    *,
    num_cpus: str = "0",
    num_gpus: str = "0",
    memory: str = "0",
    resources: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Needs:
    """Read the options of ``jobs.submit`` that say what the entrypoint needs.

    Raises:
        UsageError: one of them is nothing that Ray can reserve or select.
    """
    gpus = _amount(num_gpus, "--num-gpus")
    if gpus > 1 and not gpus.is_integer():
        raise UsageError(f"--num-gpus {num_gpus}: more than one GPU is a whole number of them")
    return Needs(
        num_cpus=_amount(num_cpus, "--num-cpus"),
        num_gpus=gpus,
        memory=parse_size(memory, "--memory"),
        resources=_resources(resources),
        labels=_labels(labels),
    )


def parse_size(text: str, flag: str) -> int:
    """Read bytes from ``4GiB``, ``500MB``, ``4G`` (1024³) or a bare number.

    Raises:
        UsageError: it is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = next((each for each in SIZES if found and each.lower() == found[2].lower()), None)
    if found is None or unit is None:
        raise UsageError(f"{flag} {text}: not a size such as 4GiB or 500MB")
    return int(float(found[1]) * SIZES[unit])


def parse_pairs(texts: Sequence[str], flag: str, what: str) -> dict[str, str]:
    """Read ``KEY=VALUE`` texts that were given to ``flag``; ``what`` shows how to write one.

    Raises:
        UsageError: one has no key or no ``=``, or a key is given twice. Values are not shown.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (equals and key.strip()):
            raise UsageError(f"{flag}: a key or '=' is missing", why=f"write {flag} {what}")
        if key in found:
            raise UsageError(f"{flag} {key} is given twice")
        found[key] = value
    return found


def amount_text(name: str, amount: float) -> str:
    """``CPU 2`` or ``memory 4.0 GiB``."""
    if name not in {"memory", "object_store_memory"}:
        return f"{name} {amount:.10g}"
    unit = max((power for power in range(4) if amount >= 1024**power), default=0)
    number = f"{amount:.0f}" if unit == 0 else f"{amount / 1024**unit:.1f}"
    return f"{name} {number} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


def _amount(text: str, flag: str) -> float:
    number = parse_number(text, flag, smallest=0.0)
    if 0 < number < SMALLEST:
        raise UsageError(f"{flag} {text}: Ray counts nothing smaller than {SMALLEST}")
    # More digits make Ray refuse the job; they are meant to be none.
    return round(number, 4)


def _resources(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for name, text in parse_pairs(texts, "--resource", "TPU=4").items():
        if name in _OPTION_OF:
            raise UsageError(f"--resource {name}: write {_OPTION_OF[name]} instead")
        found[name] = _amount(text, f"--resource {name}")
    return {name: amount for name, amount in found.items() if amount}


def _labels(texts: Sequence[str]) -> dict[str, str]:
    found = parse_pairs(texts, "--label", "KEY=VALUE, KEY=!VALUE or 'KEY=in(A, B)'")
    for key, value in found.items():
        if not _LABEL.fullmatch(key):
            raise UsageError(f"--label {key}: not a key that a node's label can have")
        if not _SELECTOR.fullmatch(value):
            raise UsageError(
                f"--label {key}: {value!r} selects nothing",
                why="write KEY=VALUE, KEY=!VALUE, 'KEY=in(A, B)' or 'KEY=!in(A, B)'",
            )
    return found
