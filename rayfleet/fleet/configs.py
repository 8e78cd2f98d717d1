"""The generated configs on disk: what is there, what should be, and how to get there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rayfleet.console import Console
from rayfleet.errors import Drift, UsageError
from rayfleet.files import write_atomically
from rayfleet.fleet.drift import Change, Cost, compare, summarize, unified
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.fleet.pins import read_pins
from rayfleet.fleet.render import BANNER_MARK, checked_configs, render_configs

TEMPLATES = Path("infra/templates")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """One generated config: ``old`` is what the file holds (None: no file), ``new`` the target."""

    cluster: str
    path: Path
    old: str | None
    new: str
    changes: tuple[Change, ...]

    @property
    def differs(self) -> bool:
        """True when the file has to be written."""
        return self.old != self.new

    @property
    def cost(self) -> Cost:
        """What bringing all changes to a running cluster costs."""
        return max((change.cost for change in self.changes), default=Cost.NOTHING)

    @property
    def diff(self) -> str:
        """A unified diff from the file to what it should be."""
        return unified(self.path.name, self.old or "", self.new)

    @property
    def summary(self) -> str:
        """A line for operators, and one more for each change and its cost."""
        if self.old is None:
            return f"{self.path.name}: new"
        details = summarize(self.changes) or ("costs nothing: only comments or layout",)
        return "\n  ".join([f"{self.path.name}: changed", *details])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigUpdate:
    """The plan of one update.

    ``orphans`` were generated for clusters that are gone; ``strangers`` were made by someone
    else and stay.
    """

    files: tuple[ConfigFile, ...]
    orphans: tuple[Path, ...] = ()
    strangers: tuple[Path, ...] = ()

    @property
    def pending(self) -> tuple[ConfigFile, ...]:
        """The files that have to be written."""
        return tuple(file for file in self.files if file.differs)

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan for operators, a line or more for each thing to do; empty if there is none."""
        return (
            *(file.summary for file in self.pending),
            *(
                f"{path.name}: remove, its cluster is not in the fleet "
                f"(should it still run, put it back, stop it, and only then take it out)"
                for path in self.orphans
            ),
            *(f"{path.name}: leave alone, rayfleet did not generate it" for path in self.strangers),
        )

    @property
    def diff(self) -> str:
        """All differences as one unified diff."""
        return "".join(file.diff for file in self.pending)

    def show(self, console: Console, *, diff: bool) -> None:
        """Print the plan, and with ``diff`` the differences line by line."""
        for line in self.lines:
            console.data(line)
        if diff and self.diff:
            console.data(self.diff.rstrip("\n"))
        if not self.pending and not self.orphans:
            console.say(f"{len(self.files)} configs are as the fleet file says")

    def refuse_drift(self) -> None:
        """Do nothing if every file is as it should be.

        Raises:
            Drift: some file is not; the message names all of them.
        """
        names = [file.path.name for file in self.pending] + [path.name for path in self.orphans]
        if names:
            raise Drift(
                "generated configs differ from the fleet file",
                why=", ".join(names),
                next_step="invoke update-configs",
            )


def plan_update(
    fleet: Fleet, *, root: Path, clusters: Sequence[Cluster] | None = None
) -> ConfigUpdate:
    """What :func:`apply_update` would do, for ``clusters`` or for the whole fleet.

    Only the whole fleet can say which files are orphans.

    Raises:
        PrerequisiteMissing: the sandbox of the fleet is not up.
        ToolFailed: a config would not be one that Ray can work with.
        UsageError: an image has no LATEST, or a template or the pin file is wrong.
    """
    chosen = tuple(fleet.clusters.values()) if clusters is None else tuple(clusters)
    pins = read_pins(fleet.outputs.pins)
    rendered = render_configs(fleet, pins, templates=root / TEMPLATES, clusters=chosen)
    texts = checked_configs(rendered)
    files = tuple(_file(fleet, cluster, texts[cluster.name]) for cluster in chosen)
    if clusters is not None:
        return ConfigUpdate(files=files)
    extra = _extra_files(fleet)
    orphans = tuple(path for path in extra if _generated(path))
    return ConfigUpdate(
        files=files,
        orphans=orphans,
        strangers=tuple(path for path in extra if path not in orphans),
    )


def apply_update(
    update: ConfigUpdate, console: Console, *, allow_identity_change: bool = False
) -> None:
    """Write what differs and remove the orphans, each file whole or not at all.

    Raises:
        PrerequisiteMissing: a file cannot be written.
        UsageError: a cluster would get a new identity, and that was not allowed.
    """
    lost = [file for file in update.pending if file.cost is Cost.NEW_IDENTITY]
    if lost and not allow_identity_change:
        raise UsageError(
            f"{', '.join(file.cluster for file in lost)} would get a new identity",
            why=f"{_identity_lines(lost)}\n  what runs under the old one would have no owner",
            next_step="stop the cluster first, then: invoke update-configs --allow-identity-change",
        )
    for file in update.pending:
        write_atomically(file.path, file.new)
    for path in update.orphans:
        path.unlink(missing_ok=True)
    if update.pending or update.orphans:
        console.say(f"wrote {len(update.pending)} configs, removed {len(update.orphans)}")


def _identity_lines(files: Sequence[ConfigFile]) -> str:
    return "".join(
        f"\n  {file.cluster}: {change.line}"
        for file in files
        for change in file.changes
        if change.cost is Cost.NEW_IDENTITY
    )


def _file(fleet: Fleet, cluster: Cluster, new: str) -> ConfigFile:
    path = fleet.config_path(cluster)
    old = _content(path)
    changes = compare(old, new) if old is not None and old != new else ()
    return ConfigFile(cluster=cluster.name, path=path, old=old, new=new, changes=changes)


def _content(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}", why=error.strerror or str(error)) from error


def _extra_files(fleet: Fleet) -> tuple[Path, ...]:
    known = {fleet.config_path(cluster) for cluster in fleet.clusters.values()}
    return tuple(sorted(set(fleet.outputs.configs.glob("*.yaml")) - known))


def _generated(path: Path) -> bool:
    return (_content(path) or "").startswith(BANNER_MARK)
