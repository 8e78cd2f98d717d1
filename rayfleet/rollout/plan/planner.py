"""From what clusters are to what is done with them, in which order. Pure but for make_plan."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rayfleet import __version__
from rayfleet.cluster.lifecycle import Lifecycle
from rayfleet.fleet.drift import compare, summarize
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.rollout.model import Change, Plan, Settings, Skipped, Target
from rayfleet.rollout.plan.estimate import Sample, estimate_plan, estimate_targets
from rayfleet.rollout.plan.look import Sighting, look_at
from rayfleet.rollout.plan.waves import make_waves

SHORT_DIGEST = len("sha256:") + 12
ONLY_IMAGE = "config: nothing but the image, comments or layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A plan, and the files that are frozen with it, by cluster: the wanted generated config of
    every target, and the one that it runs with now where that is known."""

    plan: Plan
    configs: Mapping[str, bytes]
    previous: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What a plan says of itself; the fields are Plan's."""

    id: str
    created: datetime
    operator: str
    command: str
    fleet: str


def make_plan(
    life: Lifecycle,
    clusters: Sequence[Cluster],
    settings: Settings,
    *,
    heading: Heading,
    waves: Sequence[int | str] = (),
    image: str = "",
) -> Draft:
    """Look at every cluster at once and plan a rollout of them; changes nothing.

    ``waves`` are sizes, none for those of the fleet file. ``image`` stands for the digest of an
    image that does not exist yet: the plan is then one to read, not one to carry out. Nothing
    is estimated yet.

    Raises:
        UsageError: a cluster has no generated config.
        Drift: a config is being written just now.
    """
    sightings = look_at(life, clusters)
    if image:
        sightings = tuple(_with_image(seen, image) for seen in sightings)
    return draft(sightings, life.fleet, settings, heading=heading, waves=waves)


def draft(
    sightings: Sequence[Sighting],
    fleet: Fleet,
    settings: Settings,
    *,
    heading: Heading,
    waves: Sequence[int | str] = (),
) -> Draft:
    """The plan for clusters that are as seen. Pure."""
    skipped = tuple(
        Skipped(cluster=seen.cluster.name, why=_up_to_date(seen))
        for seen in sightings
        if settings.only_outdated and not outdated(seen)
    )
    left_alone = {one.cluster for one in skipped}
    chosen = [seen for seen in sightings if seen.cluster.name not in left_alone]
    targets = {seen.cluster.name: _target(seen, fleet, settings) for seen in chosen}
    plan = Plan(
        id=heading.id,
        fleet=heading.fleet,
        created=heading.created,
        operator=heading.operator,
        command=heading.command,
        tool=__version__,
        settings=settings,
        waves=make_waves(
            tuple(targets.values()),
            order=fleet.rollout.order,
            waves=waves or fleet.rollout.waves,
            on_target=_running_digests(sightings),
        ),
        targets=targets,
        skipped=skipped,
    )
    return Draft(
        plan=plan,
        configs={seen.cluster.name: seen.raw for seen in chosen},
        previous={seen.cluster.name: seen.previous for seen in chosen if seen.previous is not None},
    )


def _with_image(seen: Sighting, digest: str) -> Sighting:
    """``seen`` as if its config had an image of ``digest``, which no registry has yet."""
    name = seen.config.image.partition("@")[0]
    return replace(
        seen,
        config=replace(seen.config, image=f"{name}@{digest}"),
        observed=replace(seen.observed, wanted_digest=digest),
        image_problem="",
    )


def outdated(seen: Sighting) -> bool:
    """Whether image or config differ from what is wanted, as far as can be known.

    Workers that are missing make no cluster outdated: preempted ones come back by themselves,
    and a restart would end the jobs that run on the others.
    """
    now = seen.observed
    if not now.head or not now.answers:
        return True
    return _other_image(seen) or now.config_hash != seen.config.hash


def _other_image(seen: Sighting) -> bool:
    """Whether it runs another image than the wanted one; of a bare tag nobody can tell."""
    return bool(seen.config.digest) and seen.observed.image_digest != seen.config.digest


def _up_to_date(seen: Sighting) -> str:
    failing = "; ".join(seen.observed.failing())
    return "it runs the wanted image and config" + (f" ({failing})" if failing else "")


def _running_digests(sightings: Sequence[Sighting]) -> frozenset[str]:
    """The images that a cluster runs whose head answers: a canary need not try them."""
    seen = (one.observed for one in sightings)
    return frozenset(one.image_digest for one in seen if one.answers and one.image_digest)


def _target(seen: Sighting, fleet: Fleet, settings: Settings) -> Target:
    cluster, now = seen.cluster, seen.observed
    return Target(
        cluster=cluster.name,
        identity=cluster.identity,
        project=str(seen.config.provider.get("project_id") or fleet.project),
        region=cluster.region,
        zone=cluster.zone,
        change=Change.RESTART if seen.exists else Change.START,
        why=_why(seen, settings),
        family=cluster.image,
        head=now.head,
        digest_now=now.image_digest,
        digest_wanted=seen.config.digest,
        config_now=_config_now(seen),
        config_wanted=seen.config.hash,
        changes=_changes(seen),
        previous=seen.previous is not None,
        workers=dict(now.workers),
        trouble=_trouble(seen),
        jobs=seen.jobs,
        jobs_problem=seen.jobs_problem,
        backup_problem=seen.backup_problem,
        unpreservable=seen.unpreservable,
        image_problem=seen.image_problem,
    )


def _why(seen: Sighting, settings: Settings) -> str:
    if not seen.exists:
        return "it is not running"
    if not settings.only_outdated:
        return "asked for"
    now = seen.observed
    if not now.head or not now.answers:
        return "nobody knows what it runs"
    differs = ["image"] if _other_image(seen) else []
    differs += ["config"] if now.config_hash != seen.config.hash else []
    return f"its {' and '.join(differs)} differ{'s' if len(differs) == 1 else ''}"


def _trouble(seen: Sighting) -> str:
    """Why its head is not healthy. Workers come and go, and another image is what we change."""
    now = seen.observed
    if not seen.exists or now.answers:
        return ""
    if now.head:
        return f"the head does not answer: {now.problem}"
    return now.problem or "it has nodes and no head"


def _changes(seen: Sighting) -> tuple[str, ...]:
    """What becomes different for the cluster, as lines for people."""
    now, wanted = seen.observed, seen.config
    if not seen.exists:
        return (f"image: {short(wanted.digest) or wanted.image}",)
    lines = []
    if _other_image(seen):
        lines.append(f"image: {short(now.image_digest) or 'unknown'} -> {short(wanted.digest)}")
    known = _config_now(seen)
    if not known:
        silent = "its head does not answer" if not now.answers else "nobody recorded it"
        lines.append(f"config: not known what it runs with, {silent}")
    elif known != wanted.hash:
        lines += _config_lines(seen)
    return tuple(lines) or ("nothing: the same image and config",)


def _config_now(seen: Sighting) -> str:
    """The hash of what it runs with: as its head says, else of what was kept of its start."""
    kept = hashlib.sha256(seen.previous).hexdigest() if seen.previous is not None else ""
    return seen.observed.config_hash or kept


def _config_lines(seen: Sighting) -> tuple[str, ...]:
    if seen.previous is None:
        return ("config: differs, and the one that it runs with is not kept",)
    old, new = (raw.decode("utf-8", "replace") for raw in (seen.previous, seen.raw))
    if _same_but_image(old, new, seen.config.image):
        return (ONLY_IMAGE,)
    # The image has a line of its own.
    changes = [one for one in compare(old, new) if seen.config.image not in one.new]
    lines = summarize(changes)
    if lines:
        return tuple(f"config: {line}" for line in lines)
    return (ONLY_IMAGE,)


def _same_but_image(old: str, new: str, image: str) -> bool:
    """Whether that is all, told by the text: parsing two configs takes milliseconds, and a fleet
    has many that differ in just that."""
    repository = image.partition("@")[0].rpartition(":")[0]
    reference = re.compile(re.escape(repository) + r"(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?")
    only_ours = set(reference.findall(new)) == {image}
    return only_ours and reference.sub("", old) == reference.sub("", new)


def short(digest: str) -> str:
    """The first characters of a digest, as people tell images apart; other text as it is."""
    return digest[:SHORT_DIGEST] if digest.startswith("sha256:") else digest


def estimated(draft: Draft, known: Iterable[Sample]) -> Draft:
    """``draft`` with the time that its targets and all of it will take, as ``known`` tells."""
    plan = draft.plan
    seconds = estimate_targets(plan.targets.values(), known)
    targets = {
        name: replace(target, estimate=seconds[name]) for name, target in plan.targets.items()
    }
    whole = estimate_plan(targets, plan.waves, plan.settings)
    return replace(draft, plan=replace(plan, targets=targets, estimate=whole))
