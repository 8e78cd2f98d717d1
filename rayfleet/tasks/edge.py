"""From Invoke's configuration to plain values: the only place that reads the context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfleet.console import Console
from rayfleet.project import Project, find_project

if TYPE_CHECKING:
    from invoke.context import Context

    from rayfleet.fleet.model import Cluster, Fleet

_KEYWORD = Parameter.KEYWORD_ONLY

ROLLOUT_HELP = {
    "parallel": "clusters that change at once, after the first ones and canaries",
    "per-region": "how many of them in one region; 0: no limit",
    "waves": "sizes of the waves: counts or percentages, such as 1,25%,100%",
    "bake": "how long each wave is watched before the next one, such as 30s or 10m",
    "max-failures": "clusters that may fail before nothing new is begun",
    "max-untouched": "clusters that may fail before anything of them was changed, likewise",
    "on-failure": "beyond that: stop, rollback-failed or rollback-all",
    "preserve-jobs": "save running jobs and give them back; --no-preserve-jobs kills them",
}
"""The flags of a rollout, for the tasks that begin one."""
_TYPED: Mapping[str, str | bool] = {
    **{flag.replace("-", "_"): "" for flag in ROLLOUT_HELP},
    "preserve_jobs": True,
}


def with_rollout_flags(body: Callable[..., None]) -> Callable[..., None]:
    """Give a task the flags of ``ROLLOUT_HELP``. ``body`` gets what was typed as ``rollout``, in
    the words of :class:`rayfleet.rollout.plan.options.Options`."""
    own = signature(body)

    @wraps(body)
    def with_flags(context: Context, **given: Any) -> None:
        body(context, rollout={name: given.pop(name) for name in _TYPED}, **given)

    # Invoke reads the options of a task from its signature.
    flags = [Parameter(name, _KEYWORD, default=typed) for name, typed in _TYPED.items()]
    with_flags.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*(one for one in own.parameters.values() if one.name != "rollout"), *flags]
    )
    return with_flags


@dataclass(frozen=True, slots=True)
class Session:
    """What every task starts from."""

    project: Project
    console: Console

    def fleet(self, *, look: bool = True) -> Fleet:
        """Load the fleet file; ``look=False`` does not look for a sandbox that is up.

        Raises:
            FleetFileError: it has mistakes; all are listed.
        """
        from rayfleet.fleet.load import load_fleet

        project = self.project
        return load_fleet(project.fleet_file, root=project.root, state=project.state, look=look)


def open_session(context: Context) -> Session:
    """The session of this run, from where the operator stands."""
    config = context.config
    project = find_project(Path.cwd(), fleet=str(config.fleet), state=str(config.state))
    return Session(project=project, console=Console())


def chosen(fleet: Fleet, names: list[str], *, every: bool) -> tuple[Cluster, ...]:
    """The clusters that ``--cluster`` (repeatable, globs) or ``--all`` name, in fleet order.

    Raises:
        UnknownCluster: a name or glob matches nothing.
        UsageError: neither or both were given.
    """
    from rayfleet.fleet.select import select_clusters

    return select_clusters(fleet, names, every=every)


def one_cluster(fleet: Fleet, name: str) -> Cluster:
    """The one cluster called ``name``.

    Raises:
        UnknownCluster: there is none.
        UsageError: a glob matches more than one.
    """
    from rayfleet.fleet.select import select_one

    return select_one(fleet, [name])
