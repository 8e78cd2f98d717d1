"""In which order clusters are changed, and which of them together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rayfleet.rollout.model import Target, Wave


def make_waves(
    targets: Sequence[Target],
    *,
    order: Sequence[str],
    waves: Sequence[int | str],
    on_target: Collection[str],
) -> tuple[Wave, ...]:
    """Put every target into one wave; the waves are changed one after the other.

    Those named in ``order`` come first, each alone. Then a canary of one for every wanted
    digest that no cluster of the fleet runs yet (``on_target`` has those that run) and that was
    not among the first; a first one that brings in such a digest is a canary itself. The rest
    follows as it stands, in ``waves``: counts, or percentages of the rest like ``"25%"``
    (rounded down, at least 1); the last size repeats, and none at all means all at once.

    Raises:
        ValueError: a size is no positive number.
    """
    left = {target.cluster: target for target in targets}
    proven = set(on_target)
    first = [left.pop(name) for name in dict.fromkeys(order) if name in left]
    made = [
        Wave(name=name, clusters=(target.cluster,), canary=_is_new(target, proven))
        for name, target in zip(_names("first", len(first)), first, strict=True)
    ]
    canaries = [target.cluster for target in left.values() if _is_new(target, proven)]
    for name, cluster in zip(_names("canary", len(canaries)), canaries, strict=True):
        made.append(Wave(name=name, clusters=(left.pop(cluster).cluster,), canary=True))
    groups = tuple(_split(tuple(left), waves))
    for name, group in zip(_names("rest", len(groups)), groups, strict=True):
        made.append(Wave(name=name, clusters=group))
    return tuple(made)


def _names(word: str, count: int) -> list[str]:
    """``count`` names: the word itself, or numbered from 1 where there are several."""
    return [word] if count == 1 else [f"{word} {number}" for number in range(1, count + 1)]


def _is_new(target: Target, proven: set[str]) -> bool:
    """Whether nobody runs or tries the digest so far; from now on somebody does."""
    new = target.digest_wanted not in proven
    proven.add(target.digest_wanted)
    return new


def _split(names: tuple[str, ...], waves: Sequence[int | str]) -> Iterator[tuple[str, ...]]:
    sizes = [_size(size, len(names)) for size in waves or ("100%",)]
    begin = number = 0
    while begin < len(names):
        size = sizes[min(number, len(sizes) - 1)]
        yield names[begin : begin + size]
        begin, number = begin + size, number + 1


def _size(size: int | str, rest: int) -> int:
    text = str(size).strip()
    percent = text.endswith("%")
    number = int(text.removesuffix("%"))
    if number < 1:
        raise ValueError(f"a wave of {size} has no cluster")
    return max(1, rest * number // 100) if percent else number
