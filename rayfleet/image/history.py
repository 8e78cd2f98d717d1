"""What LATEST of an image was: the pin file, and its versions in git."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from rayfleet.console import Console
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.pins import PinHistory, parse_histories, read_histories
from rayfleet.git import try_git, words
from rayfleet.image.references import check_family, complete_digest, shortened

SHOWN_TAGS = 8
SHORT_COMMIT = 7
HEADERS = ("pin", "tag", "digest", "published", "commit", "pinned")
_RECORD = "\x1e"
_FIELD = "\x1f"
# One process for all versions: each commit with the whole file as the context of its change,
# whatever the user's configuration says about diffs. A merge is compared with each parent.
_LOG = (
    "log",
    f"--format={_RECORD}%H{_FIELD}%an{_FIELD}%aI{_FIELD}%s",
    "--topo-order",
    "--root",
    "--no-follow",
    "--no-show-signature",
    "-m",
    "--patch",
    "--unified=1000000",
    "--inter-hunk-context=0",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--text",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The commit of the pin file that pinned something; ``at`` is ISO 8601."""

    commit: str
    author: str
    at: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit made of the pin file, compared with one of its parents."""

    record: Record
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pin, and the commit that recorded it (None: it is in the working tree only)."""

    pin: Pin
    record: Record | None = None
    current: bool = False
    previous: bool = False

    @property
    def mark(self) -> str:
        """``current``, ``previous`` or nothing."""
        return "current" if self.current else "previous" if self.previous else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHistory:
    """The pins of a family, newest first; ``note`` says why there may have been more."""

    family: str
    entries: tuple[Entry, ...]
    note: str = ""

    def find(self, text: str) -> Pin:
        """The newest pin with the tag or digest ``text``; the digest may be shortened.

        Raises:
            UsageError: there is none.
        """
        if text.startswith("sha256:"):
            known = [entry.pin.digest for entry in self.entries]
            text = complete_digest(text, known, family=self.family)
        for entry in self.entries:
            if text in {entry.pin.tag, entry.pin.digest}:
                return entry.pin
        tags = list(dict.fromkeys(entry.pin.tag for entry in self.entries))[:SHOWN_TAGS]
        raise UsageError(
            f"{text} was never a pin of {self.family!r}",
            why=f"the latest pins are {', '.join(tags) or 'none'}",
            next_step=f"invoke image.history --image {self.family}",
        )

    def show(self, console: Console, *, limit: int, as_json: bool) -> None:
        """Print the newest ``limit`` pins on stdout."""
        shown = self.entries[:limit]
        if as_json:
            console.json([self._as_data(entry) for entry in shown])
        elif shown:
            # Not a table, which on a narrow terminal would cut what one wants to copy.
            for line in _columns([HEADERS, *(_row(entry) for entry in shown)]):
                console.data(line)
        if len(shown) < len(self.entries):
            console.say(f"{len(self.entries) - len(shown)} more with --limit {len(self.entries)}")
        if not self.entries:
            console.say(f"{self.family} was never pinned; next: {_publish(self.family)}")
        if self.note:
            console.say(self.note)

    def _as_data(self, entry: Entry) -> dict[str, object]:
        return {
            "family": self.family,
            **asdict(entry.pin),
            "current": entry.current,
            "previous": entry.previous,
            "pinned": asdict(entry.record) if entry.record is not None else None,
        }


def read_history(fleet: Fleet, family: str) -> ImageHistory:
    """The pins of ``family`` from the pin file and from git.

    Raises:
        UsageError: the fleet has no such image, or the pin file is broken.
        ToolFailed: git refuses.
    """
    path = fleet.outputs.pins
    now = read_histories(path).get(check_family(family, fleet))
    if not path.parent.is_dir():
        return ImageHistory(family=family, entries=())
    entries = merge_entries(now, tuple(_recorded(path, family)))
    return ImageHistory(family=family, entries=entries, note=_note(path) if entries else "")


def known_digests(fleet: Fleet) -> Callable[[str], Iterator[str]]:
    """The digests of a family's pins, for references that shorten one."""

    def digests(family: str) -> Iterator[str]:
        return (entry.pin.digest for entry in read_history(fleet, family).entries)

    return digests


def merge_entries(now: PinHistory | None, recorded: Sequence[Entry]) -> tuple[Entry, ...]:
    """Put the working tree's pins on top of the ``recorded`` ones (newest first), unless they
    are the same, and mark which is current and which previous. Pure."""
    entries = list(recorded)
    if now is None:
        return tuple(entries)
    if not entries or not _same(entries[0].pin, now.current):
        entries.insert(0, Entry(pin=now.current))
    entries[0] = replace(entries[0], current=True)
    if now.previous is None:
        return tuple(entries)
    for place, entry in enumerate(entries):
        if place and _same(entry.pin, now.previous):
            entries[place] = replace(entry, previous=True)
            break
    else:
        entries.insert(1, Entry(pin=now.previous, previous=True))
    return tuple(entries)


def _same(one: Pin, other: Pin) -> bool:
    return (one.tag, one.digest) == (other.tag, other.digest)


def _recorded(path: Path, family: str) -> Iterator[Entry]:
    """What commits pinned, newest first: those after which the family's current pin is none of
    their parents'."""
    for record, changes in groupby(_changes(path), key=lambda change: change.record):
        texts = [(change.before, change.after) for change in changes]
        pin = _current(texts[0][1], path, family)
        parents = [_current(before, path, family) for before, _ in texts]
        if pin is not None and not any(old is not None and _same(old, pin) for old in parents):
            yield Entry(pin=pin, record=record)


def _changes(path: Path) -> Iterator[Change]:
    """What commits changed in the file ``path``, newest first; a merge once per parent."""
    finished = try_git(path.parent, *_LOG, "--", path.name)
    if finished.returncode != 0:
        said = words(finished)
        if "not a git repository" in said or "does not have any commits yet" in said:
            return
        raise ToolFailed(f"git cannot tell the history of {path}", why=said)
    for text in finished.stdout.decode("utf-8", "replace").split(_RECORD)[1:]:
        head, _, patch = text.partition("\n")
        commit, author, at, subject = head.split(_FIELD, 3)
        before, after = split_patch(patch)
        record = Record(commit=commit, author=author, at=at, subject=subject)
        yield Change(record=record, before=before, after=after)


def split_patch(patch: str) -> tuple[str, str]:
    """The old and the new text of a file from a patch whose only hunk holds it whole. Pure."""
    _, _, hunk = patch.partition("\n@@ ")
    lines = hunk.split("\n")[1:]
    before = (line[1:] for line in lines if line[:1] in {" ", "-"})
    after = (line[1:] for line in lines if line[:1] in {" ", "+"})
    return "\n".join(before), "\n".join(after)


def _current(text: str, path: Path, family: str) -> Pin | None:
    history = _parsed(text, path).get(family)
    return history.current if history is not None else None


@lru_cache(maxsize=8)
def _parsed(text: str, path: Path) -> dict[str, PinHistory]:
    """One version of the file: most are asked about twice, as new one and as old one."""
    try:
        return parse_histories(text, path)
    except UsageError:
        # Somebody edited it, or it is older than this format: it pins nothing that is known.
        return {}


def _note(path: Path) -> str:
    """Why there may be more pins than are known; empty if git has them all."""
    if try_git(path.parent, "ls-files", "--error-unmatch", "--", path.name).returncode != 0:
        return f"git has no {path}: only the current and the previous pin are known"
    shallow = try_git(path.parent, "rev-parse", "--is-shallow-repository").stdout
    if shallow.strip() == b"true":
        return "this checkout is shallow: older pins are not in it (git fetch --unshallow)"
    return ""


def _row(entry: Entry) -> tuple[str, ...]:
    pin, record = entry.pin, entry.record
    pinned = "not committed"
    if record is not None:
        pinned = f"{minute(record.at)} by {record.author} in {record.commit[:SHORT_COMMIT]}"
    return (
        entry.mark,
        pin.tag,
        shortened(pin.digest) or "unknown",
        minute(pin.published) or "unknown",
        pin.commit[:SHORT_COMMIT] or "unknown",
        pinned,
    )


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def minute(text: str) -> str:
    """An ISO 8601 time as tables show it: UTC, to the minute; other texts as they are."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M}Z"


def _publish(family: str) -> str:
    return f"invoke cluster-docker --image {family}"
