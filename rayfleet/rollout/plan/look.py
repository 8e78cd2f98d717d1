"""Look at every cluster of a rollout before it is planned: all at once, changing nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.fanout import fan_out
from rayfleet.cluster.health import Observed
from rayfleet.cluster.lifecycle import Lifecycle, brief
from rayfleet.errors import Drift, RayfleetError, UsageError
from rayfleet.fleet.model import Cluster
from rayfleet.job.redaction import redacted
from rayfleet.rollout.model import PlannedJob

if TYPE_CHECKING:
    from rayfleet.job.snapshot.source import Look
    from rayfleet.job.vault.model import SavedJob

ASK_TIMEOUT = 90.0  # seconds to look at one cluster
LOOK_LIMIT = 16  # clusters looked at at once
ENTRYPOINT_LENGTH = 80  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One cluster as it is, and what it is to become.

    ``raw`` are the bytes of its generated config, ``config`` what they say; ``previous`` those
    that it runs with now, None when nobody knows. ``exists`` is False when nothing of it is
    there; it is True when nobody could be asked. ``jobs_problem`` says why the jobs could not be
    listed, ``backup_problem`` why no backup has them, ``image_problem`` why its region's registry
    could not give it the wanted image.
    """

    cluster: Cluster
    config: LaunchConfig
    raw: bytes
    observed: Observed
    exists: bool = True
    jobs: tuple[PlannedJob, ...] = ()
    jobs_problem: str = ""
    backup_problem: str = ""
    unpreservable: tuple[str, ...] = ()
    previous: bytes | None = None
    image_problem: str = ""


def look_at(life: Lifecycle, clusters: Sequence[Cluster]) -> tuple[Sighting, ...]:
    """Look at all ``clusters`` at once, in their order. One that does not answer is told as such.

    Raises:
        UsageError: a cluster has no generated config, or one of another cluster.
        Drift: a config is being written just now.
    """
    unseen = [_unseen(life, cluster) for cluster in clusters]
    questions = {one.cluster.name: partial(_look, life, one) for one in unseen}
    answers = fan_out(questions, limit=LOOK_LIMIT, timeout=ASK_TIMEOUT, what="the cluster")
    return tuple(_told(one, answers[one.cluster.name]) for one in unseen)


def _unseen(life: Lifecycle, cluster: Cluster) -> Sighting:
    config = read_launch_config(life.fleet, cluster)
    raw = config.path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != config.hash:
        raise Drift(
            f"the config of {cluster.name} is being written by another run",
            next_step="run the same command again",
        )
    if config.identity != cluster.identity:
        raise UsageError(
            f"the generated config of {cluster.name} is of another cluster",
            why=f"it says {config.identity}, the fleet file says {cluster.identity}",
            next_step="invoke update-configs --diff",
        )
    observed = Observed(
        cluster=cluster.name,
        wanted_digest=config.digest,
        wanted_hash=config.hash,
        wanted_workers=config.min_workers,
    )
    return Sighting(cluster=cluster, config=config, raw=raw, observed=observed)


def _told(unseen: Sighting, answer: Sighting | RayfleetError) -> Sighting:
    if isinstance(answer, Sighting):
        return answer
    problem = brief(answer)
    observed = replace(unseen.observed, problem=problem)
    return replace(unseen, observed=observed, jobs_problem=problem)


def _look(life: Lifecycle, unseen: Sighting) -> Sighting:
    cluster = unseen.cluster
    # Registry, head and store are asked at the same time: an operator waits for the slowest.
    with ThreadPoolExecutor(2) as pool:
        image = pool.submit(_image, life, cluster)
        jobs = pool.submit(_with_jobs, life, unseen)
        observed = life.observe(cluster)
        seen = replace(unseen if not observed.head else jobs.result(), observed=observed)
        seen = replace(seen, image_problem=image.result())
    if not observed.head:
        if observed.problem:
            return replace(seen, jobs_problem=observed.problem)
        seen = replace(seen, exists=bool(life.nodes(cluster)))
    if not seen.exists:
        return seen
    if not observed.head or seen.jobs_problem:
        seen = replace(seen, backup_problem=_backup(life, cluster))
    return replace(seen, previous=_previous(life, seen))


def _previous(life: Lifecycle, seen: Sighting) -> bytes | None:
    from rayfleet.cluster.started import previous_config

    if seen.observed.config_hash == seen.config.hash:
        return seen.raw
    return previous_config(life.project, life.fleet, seen.cluster)


def _backup(life: Lifecycle, cluster: Cluster) -> str:
    from rayfleet.job.preserve import Preserver
    from rayfleet.job.vault.choice import default_backup

    vault = Preserver(life.project, life.fleet, life.console).vault
    try:
        default_backup(vault, cluster.name, lambda _: None)
    except RayfleetError as error:
        return brief(error)
    return ""


def _image(life: Lifecycle, cluster: Cluster) -> str:
    try:
        life.require_image(cluster)
    except RayfleetError as error:
        return brief(error)
    return ""


def _with_jobs(life: Lifecycle, seen: Sighting) -> Sighting:
    """Read from Ray's own store, which is what a backup will read: no dashboard is needed."""
    from rayfleet.job.infrastructure import infrastructure_rule
    from rayfleet.job.snapshot.source import HeadSource

    try:
        with life.open_head(seen.cluster) as head:
            look = HeadSource(head).look()
    except RayfleetError as error:
        return replace(seen, jobs_problem=brief(error))
    ours = infrastructure_rule(life.fleet.infrastructure_jobs)
    jobs = [job for job in look.jobs if not ours(job.submission_id, job.metadata)]
    return replace(
        seen,
        jobs=tuple(_planned(job) for job in jobs),
        unpreservable=(*_unreadable(jobs), *_lost(look)),
    )


def _planned(job: SavedJob) -> PlannedJob:
    entrypoint = " ".join(redacted(job.entrypoint, job.secrets).split())
    return PlannedJob(
        id=job.submission_id,
        owner=job.owner or "unknown",
        status=job.status.value,
        entrypoint=entrypoint[:ENTRYPOINT_LENGTH],
    )


def _unreadable(jobs: Sequence[SavedJob]) -> tuple[str, ...]:
    return tuple(f"job {j.submission_id}: {'; '.join(j.missing)}" for j in jobs if j.missing)


def _lost(look: Look) -> tuple[str, ...]:
    return tuple(
        f"{one.kind} {one.name}" + (f" ({one.detail})" if one.detail else "")
        for one in look.unrestorable
    )
