"""Before anything is touched: can this cluster be changed, and would it come up again?"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rayfleet.cluster.started import read_start
from rayfleet.errors import Drift, RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.job.dashboard import Unauthorized
from rayfleet.rollout.model import Change, Output, Unhealthy, restore_command
from rayfleet.rollout.performer import LeftAlone
from rayfleet.rollout.steps.site import Site

if TYPE_CHECKING:
    from rayfleet.job.dashboard import Dashboard


def preflight(site: Site) -> Output:
    """See that the image is in the region, the head is the plan's, key and token work, and the
    head is healthy.

    Raises:
        UsageError: the image is not there, or there is no config to go back to.
        Drift: the cluster is not the one that was planned for.
        LeftAlone: the head is not healthy, and such are skipped.
        Unreachable: the head is not healthy, and such fail.
        Unauthorized: the token is refused.
        Locked: a rollout of another machine has the cluster.
    """
    _require_config(site)
    # The registry is asked meanwhile.
    with ThreadPoolExecutor(1) as pool:
        image = pool.submit(site.machines.require_image)
        seen, trouble = _seen(site)
        image.result()
    if trouble and not (site.task.changed and not seen["head"]):
        _decide(site, trouble)
        seen["trouble"] = trouble
    if seen["head"] and not site.back:
        try:
            site.mark()
        except Unreachable:
            if not trouble:
                raise
    return seen


def _seen(site: Site) -> tuple[dict[str, object], str]:
    """What there is now, and what is wrong with it that matters."""
    node = site.machines.nodes.head()
    seen: dict[str, object] = {"head": node, "session": "", "workers": {}, "config": ""}
    if site.back:
        return seen, ""
    trouble = _look(site, node, seen) if node else "it has no head"
    return seen, "" if site.task.target.change is Change.START else trouble


def _require_config(site: Site) -> None:
    """See that there is a config to go to: on the way back nobody may know any."""
    if site.back and not site.fleet.config_path(site.cluster).exists():
        raise UsageError(
            f"{site.cluster.name} cannot go back",
            why="nobody recorded the config that it ran with before",
            next_step=f"put the pin back, then: invoke restart --cluster {site.cluster.name}",
        )


def _look(site: Site, node: str, seen: dict[str, object]) -> str:
    """Fill in what the head tells; returns what is wrong with it."""
    planned = site.task.target.head
    try:
        head = site.head()
        started = read_start(head)
    except Unreachable as error:
        if node != planned:
            raise _replaced(site) from error
        return _line(error)
    seen["config"] = started.config
    if node != planned and started.rollout != site.task.plan.id:
        raise _replaced(site)
    try:
        seen |= _ask(site.dashboard())
    except Unauthorized:
        raise
    except (Unreachable, ToolFailed) as error:
        return _line(error)
    return ""


def _ask(dashboard: Dashboard) -> dict[str, object]:
    from collections import Counter

    from rayfleet.cluster.live import NODES, parse_nodes

    version = dashboard.get("/api/version")
    jobs = dashboard.get("/api/jobs/")  # refuses a wrong token
    store = dashboard.get("/api/gcs_healthz")
    listed = dashboard.get(NODES)
    for answer, what in ((version, "say its version"), (jobs, "list its jobs"), (store, "answer")):
        if not answer.ok:
            raise dashboard.refusal(answer, what)
    nodes = parse_nodes(listed.json()) if listed.ok else ()
    workers = Counter(node.kind for node in nodes if not node.head)
    document = version.json()
    session = document.get("session_name", "") if isinstance(document, Mapping) else ""
    return {"session": str(session), "workers": dict(workers)}


def _decide(site: Site, trouble: str) -> None:
    """Do with an unhealthy head what the operator said."""
    name, wish = site.cluster.name, site.task.plan.settings.unhealthy
    if wish is Unhealthy.SKIP:
        raise LeftAlone(f"{name} is not healthy: {trouble}")
    if wish is Unhealthy.FAIL:
        raise Unreachable(
            f"{name} is not healthy",
            why=trouble,
            next_step=f"invoke restart --cluster {name} --unhealthy repair",
        )
    site.narrate(f"not healthy, to be repaired: {trouble}")


def _replaced(site: Site) -> Drift:
    name, planned = site.cluster.name, site.task.target.head
    # Whoever made the new head has not given back what an earlier try has taken.
    owed = "".join(f", then: {restore_command(name, one)}" for one in site.task.owed)
    return Drift(
        f"{name}: its head was replaced since the plan was made",
        why=f"planned for {planned or 'a cluster without a head'}",
        next_step=f"plan again: invoke restart --cluster {name}{owed}",
    )


def _line(error: RayfleetError) -> str:
    return " ".join((f"{error.what}: {error.why}" if error.why else error.what).split())[:300]
