"""The dashboards of a fleet's clusters, for the operator who asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.config import read_launch_config
from rayfleet.console import Console
from rayfleet.dashboard.browser import open_if_possible
from rayfleet.dashboard.serve import Dashboards, run
from rayfleet.dashboard.status import Place
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.rollout.progress import progress_of
from rayfleet.secret.tokens import credential_of

if TYPE_CHECKING:
    from rayfleet.cluster.heads import Heads


def show_dashboards(
    project: Project,
    fleet: Fleet,
    clusters: Sequence[Cluster],
    *,
    port: int,
    browse: bool,
    console: Console,
) -> None:
    """Serve the page of ``clusters`` on ``port`` (0: any) of 127.0.0.1 until Ctrl-C.

    The page's address is the one line on stdout; ``browse`` opens it too, where there is a
    screen.

    Raises:
        UsageError: the port is taken.
    """
    from rayfleet.cluster.heads import Heads

    door = project.state / "dashboard.html"

    def show(link: str) -> None:
        if browse and console.interactive:
            open_if_possible(link, door)

    with Heads(project, fleet) as heads:
        places = places_of(project, fleet, clusters, heads)
        try:
            run(Dashboards(fleet=fleet.project, places=places, port=port), console, show=show)
        finally:
            door.unlink(missing_ok=True)


def places_of(
    project: Project, fleet: Fleet, clusters: Sequence[Cluster], heads: Heads
) -> tuple[Place, ...]:
    """The places of ``clusters``, whose heads are entered through ``heads``."""

    targets = zip(clusters, heads.targets(clusters), strict=True)
    return tuple(
        Place(
            cluster=cluster.name,
            region=cluster.region,
            zone=cluster.zone,
            connect=partial(heads.open, target),
            token=credential_of(project, fleet, cluster),
            config=partial(read_launch_config, fleet, cluster),
            rollout=partial(progress_of, project, cluster),
        )
        for cluster, target in targets
    )
