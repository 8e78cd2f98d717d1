"""Stop, nothing left, start."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rayfleet.cluster.started import last_started, read_start, record_start
from rayfleet.errors import Drift, RayfleetError, ToolFailed, Unreachable
from rayfleet.job.dashboard import Unauthorized
from rayfleet.rollout.model import Change, Output, owed_of, restore_command
from rayfleet.rollout.steps.last_look import last_look
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
    """Terminate every node, the head first; of a head that is there, see to its jobs before.

    Raises:
        Locked: another rollout has the cluster.
        Unreachable: the head does not tell its jobs, and this process has not seen them saved.
        IncompleteBackup: a job that came since the snapshot could not be saved.
    """
    seen: Output = {"backup": site.backups[-1]} if site.backups else {}
    if site.machines.nodes.head():
        seen = _looked_at(site)
    site.links.drop(site.cluster.name)
    gone = sum(machines.terminate() for machines in site.grounds)
    site.forget_mark()
    return {"nodes": gone, **seen}


def _looked_at(site: Site) -> Output:
    """See whose the head is and, unless jobs are to die, that all of them are saved."""
    if site.task.plan.settings.preserve_jobs:
        seen = last_look(site)
        if site.back and site.task.target.change is Change.START:
            for owed in owed_of(seen):
                site.narrate(
                    f"{len(owed.jobs)} jobs end with it and are saved; when it runs again: "
                    + restore_command(site.cluster.name, owed)
                )
        return seen
    with suppress(Unreachable):  # a dead head is nobody's
        site.mark()
    return {}


def empty(site: Site) -> Output:
    """See that no node is left, and with them no process of any job.

    A head that somebody has started since the stop is stopped like the one before.

    Raises:
        ToolFailed: nodes are left.
        RayfleetError: as :func:`stop`.
    """
    seen = stop(site) if site.machines.nodes.head() else {}
    for machines in site.grounds:
        machines.require_none()
    return {**seen, "at": time.time()}


def start(site: Site) -> Output:
    """Bring the head up, unless an earlier try did, mark it, record what it was started with, and
    let workers that Ray did not make follow.

    Raises:
        ToolFailed: Ray could not bring it up, or Google did not tell an added worker.
        Unreachable: it is up and does not let us in, or Google does not answer.
        Locked: another rollout has the head.
        Drift: a cluster that did not run has jobs.
    """
    site.links.drop(site.cluster.name)
    machines = site.machines
    node = machines.nodes.head()
    launched = not (node and _is_up(site, node))
    seen: Output = {}
    if launched:
        seen = _spared(site, node) if node else {}
        site.links.drop(site.cluster.name)
        node = machines.launch()
    head = _entered(site)
    site.mark()
    record_start(
        head,
        machines.config,
        state=site.project.state,
        node=node,
        rollout=site.task.plan.id,
    )
    take_along(site.cluster.name, machines.config, site.narrate)
    return {**seen, "head": node, "launched": launched}


def _spared(site: Site, node: str) -> Output:
    """Save the jobs of a head that is there and has to be set up again: that ends them.

    One that was never up whole may tell nothing.
    """
    try:
        seen = _looked_at(site)
    except (Unreachable, ToolFailed) as error:
        if _was_up(site, node):
            raise
        site.narrate(f"{error.what}; it was never up whole, setting it up again")
        return {}
    jobs = [name for owed in owed_of(seen) for name in owed.jobs]
    if jobs and site.task.target.change is Change.START:
        raise Drift(
            f"{site.cluster.name}: it was to be started, and its head has jobs already",
            why=f"{len(jobs)} have not ended; they are saved",
            next_step=f"invoke rollouts.unlock {site.task.plan.id} --cluster {site.cluster.name}, "
            f"then: invoke restart --cluster {site.cluster.name}",
        )
    return seen


def _was_up(site: Site, node: str) -> bool:
    """Whether a start has once recorded that the head ``node`` was up whole: on it, or here."""
    if last_started(site.project.state, site.cluster).node == node:
        return True
    try:
        return bool(read_start(site.head()).config)
    except Unreachable:
        return False


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
