"""Everything that needs an image: pins, configs, nodes that run, rollouts and ways back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from rayfleet.cluster.fanout import fan_out
from rayfleet.cluster.lifecycle import brief
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.fleet.pins import read_histories
from rayfleet.project import Project
from rayfleet.registry.protect import pin_uses
from rayfleet.registry.uses import Kind, Unknown, Use, Uses
from rayfleet.rollout.uses.clusters import Asker
from rayfleet.rollout.uses.rollouts import rollout_uses
from rayfleet.rollout.uses.text import images_in

LOOK_LIMIT = 16  # clusters asked at once
ASK_TIMEOUT = 90.0  # seconds per cluster


def images_in_use(
    project: Project, fleet: Fleet, *, regions: Sequence[str] = (), now: datetime | None = None
) -> Uses:
    """Ask files and clusters (of ``regions``, default all) which images they need.

    What cannot be asked is in ``unknown``. A rollout is a way back for as long as the policy
    keeps any version: see :class:`rayfleet.fleet.model.Cleanup`.

    Raises:
        UsageError: the pin file is broken.
    """
    pins = [pin_uses(fleet, family) for family in read_histories(fleet.outputs.pins)]
    rollouts = rollout_uses(
        project,
        fleet,
        now=now or datetime.now(UTC),
        recent=fleet.registries.cleanup.delete_older_than,
    )
    # In the order in which people want to hear of them.
    answers = [*_asked(project, fleet, regions), *pins, _configured(fleet), rollouts]
    return Uses(
        known=tuple(dict.fromkeys(use for answer in answers for use in answer.known)),
        unknown=tuple(each for answer in answers for each in answer.unknown),
    )


def _configured(fleet: Fleet) -> Uses:
    """What the generated configs name, those of clusters that left the fleet included, and the
    fixed tags of the fleet file, which a config gets when it is generated next."""
    known: list[Use] = []
    unknown: list[Unknown] = []
    by_path = {fleet.config_path(cluster): cluster for cluster in fleet.clusters.values()}
    for path in sorted(fleet.outputs.configs.glob("*.yaml")):
        cluster = by_path.get(path)
        region = cluster.region if cluster else ""
        try:
            text = path.read_text(errors="replace")
        except OSError as error:
            why = f"its config {path.name} cannot be read: {error.strerror}"
            unknown.append(
                Unknown(by=path.stem, why=why, region=region, next_step="invoke update-configs")
            )
            continue
        by = f"the config of {path.stem}"
        known.extend(images_in(fleet, text, by=by, kind=Kind.CONFIG, region=region))
    known.extend(_fixed(fleet))
    return Uses(known=tuple(known), unknown=tuple(unknown))


def _fixed(fleet: Fleet) -> Iterator[Use]:
    for cluster in fleet.clusters.values():
        image = fleet.images[cluster.image]
        if cluster.tag:
            yield Use(
                by=f"the fleet file for {cluster.name}",
                kind=Kind.CONFIG,
                tag=cluster.tag,
                region=cluster.region,
                repository=image.repository,
                package=image.name,
            )


def _asked(project: Project, fleet: Fleet, regions: Sequence[str]) -> list[Uses]:
    asker = Asker(project=project, fleet=fleet)
    clusters = {
        cluster.name: cluster
        for cluster in fleet.clusters.values()
        if not regions or cluster.region in regions
    }
    questions = {name: partial(asker.ask, cluster) for name, cluster in clusters.items()}
    seen = fan_out(questions, limit=LOOK_LIMIT, timeout=ASK_TIMEOUT, what="the cluster")
    return [_answer(clusters[name], answer) for name, answer in seen.items()]


def _answer(cluster: Cluster, answer: Uses | RayfleetError) -> Uses:
    if isinstance(answer, Uses):
        return answer
    return Uses(
        unknown=(
            Unknown(
                by=cluster.name,
                why=brief(answer),
                region=cluster.region,
                next_step=answer.next_step,
            ),
        )
    )
