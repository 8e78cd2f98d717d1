"""Stop, nothing left, start."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rayfleet.cluster.started import read_start, record_start
from rayfleet.errors import RayfleetError, Unreachable
from rayfleet.job.dashboard import Unauthorized
from rayfleet.rollout.model import Output
from rayfleet.rollout.steps.site import Site
from rayfleet.waiting import wait_until
from rayfleet.worker.care import take_along

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head

ANSWER_SECONDS = 10.0
"""How long a head that is there may take to answer until it counts as one to be set up."""

LOGIN_SECONDS = 60.0
"""How long a head that Ray has just set up may take to let us in."""


def stop(site: Site) -> Output:
    """Terminate every node, the head first.

    Raises:
        Locked: a rollout of another machine has the cluster.
    """
    if site.links.alive(site.cluster.name):
        with suppress(Unreachable):  # a head that has just died is fine
            site.mark()
    site.links.drop(site.cluster.name)
    gone = sum(machines.terminate() for machines in site.grounds)
    site.forget_mark()
    return {"nodes": gone}


def empty(site: Site) -> Output:
    """See that no node is left, and with them no process of any job.

    Raises:
        ToolFailed: nodes are left.
    """
    for machines in site.grounds:
        machines.require_none()
    return {"at": time.time()}


def start(site: Site) -> Output:
    """Bring the head up, unless an earlier try did, record what it was started with, and let
    workers that Ray did not make follow.

    Raises:
        ToolFailed: Ray could not bring it up, or Google did not tell an added worker.
        Unreachable: it is up and does not let us in, or Google does not answer.
    """
    site.links.drop(site.cluster.name)
    machines = site.machines
    node = machines.nodes.head()
    launched = not (node and _is_up(site, node))
    if launched:
        node = machines.launch()
    head = _entered(site)
    record_start(
        head,
        machines.config,
        state=site.project.state,
        node=node,
        rollout=site.task.plan.id,
    )
    take_along(site.cluster.name, machines.config, site.narrate)
    return {"head": node, "launched": launched}


def _is_up(site: Site, node: str) -> bool:
    """Whether the head is one that was set up whole, on the image and config that is wanted."""
    from rayfleet.cluster.health import container_digest

    machines = site.machines
    machines.trust(node)
    config = machines.config
    try:
        head = site.head()
        recorded = read_start(head).config
        digest = machines.nodes.image_digest(node) or container_digest(head)
    except RayfleetError:
        return False
    if recorded not in {"", config.hash} or (config.digest and digest != config.digest):
        return False
    try:
        wait_until(
            lambda: _answers(site),
            what="the dashboard",
            timeout=ANSWER_SECONDS,
            clock=site.clock,
        )
    except Unreachable:
        return False
    site.narrate("its head is up already")
    return True


def _answers(site: Site) -> bool:
    try:
        return site.dashboard(attempts=1).get("/api/version").ok
    except Unreachable:
        return False
    except Unauthorized:
        return True  # the gates tell it better


def _entered(site: Site) -> Head:
    refusals: list[str] = []

    def enter() -> Head | None:
        try:
            return site.head()
        except Unreachable as error:
            refusals.append(error.why or error.what)
            return None

    return wait_until(
        enter,
        what=f"{site.cluster.name}: its head lets us in",
        timeout=LOGIN_SECONDS,
        reason=lambda: refusals[-1],
        clock=site.clock,
    )
