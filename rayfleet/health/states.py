"""The states that clusters get into, each recognised by one pure function, with its remedy.

Where something could not be looked at, the functions that need it find nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from rayfleet.health.holding import Holding, Kind, Leftover, leftovers, removable
from rayfleet.health.location import bucket_elsewhere
from rayfleet.health.sight import Finding, Sight
from rayfleet.worker.model import short_name

SETTLED = 1200.0  # seconds after which a slice has booted, pulled its image and joined
LOST = "autoscaler lost its workers"
SHOWN = 4  # names in a sentence
GIB = 1024**3

State = Callable[[Sight], Iterator[Finding]]


def unfinished_rollout(sight: Sight) -> Iterator[Finding]:
    """A rollout has the cluster, and no process of it works there: it may be half changed."""
    if sight.rollout is not None and not sight.rollout.running:
        yield Finding(
            state="unfinished rollout",
            found=sight.rollout.text,
            remedy=sight.rollout.next_step,
        )


def head_silent(sight: Sight) -> Iterator[Finding]:
    """There is a head, and it does not answer; or nobody could say whether there is one."""
    seen, name = sight.observed, sight.cluster.name
    if seen.refused:
        yield Finding(
            state="token refused",
            found=seen.problem,
            remedy=f"invoke auth.check --cluster {name}",
        )
    elif seen.problem:
        yield Finding(
            state="head does not answer" if seen.head else "head unknown",
            found=seen.problem,
            remedy=f"invoke restart --cluster {name} --unhealthy repair"
            if seen.head
            else "invoke doctor",
        )


def no_head_but_workers(sight: Sight) -> Iterator[Finding]:
    """Workers run, and the head is gone: nobody uses them, nobody ends them."""
    workers = sight.observed.orphans
    if sight.holdings is not None:
        # What was added by hand waits for the next head.
        workers = _names([worker for worker in sight.holdings.workers if not worker.by_hand])
    if workers and _headless(sight):
        yield Finding(
            state="workers without a head",
            found=f"unused, and nobody ends it: {_some(workers)}",
            remedy=f"invoke restart --cluster {sight.cluster.name} --unhealthy repair",
            subjects=workers,
        )


def still_ending(sight: Sight) -> Iterator[Finding]:
    """There is no head, and some of the cluster is still on its way out: it counts against the
    quota, and what runs there may still write."""
    if sight.holdings is None or not _headless(sight):
        return
    if ending := [thing for thing in sight.holdings.things if thing.ending]:
        yield Finding(
            state="not gone yet",
            found=f"{_some(_names(ending))}: asked to end, not gone yet",
            remedy=f"invoke stop --cluster {sight.cluster.name}",
            subjects=_names(ending),
        )


def several_heads(sight: Sight) -> Iterator[Finding]:
    """Two starts at once, or a termination that was cut off."""
    heads = sight.holdings.heads if sight.holdings else ()
    if len(heads) > 1:
        yield Finding(
            state="several heads",
            found=f"{_count(len(heads), 'head')}: {_some(_names(heads))}",
            remedy=f"invoke restart --cluster {sight.cluster.name}",
            subjects=_names(heads),
        )


def autoscaler_gone(sight: Sight) -> Iterator[Finding]:
    """The head answers, and nothing on it adds or removes workers any more."""
    head = sight.nodes.get(sight.cluster.name)
    if sight.observed.answers and head is not None and not head.inside.autoscaler:
        yield Finding(
            state="no autoscaler",
            found="the autoscaler's process does not run on the head",
            remedy=f"invoke restart --cluster {sight.cluster.name}",
        )


def workers_lost(sight: Sight) -> Iterator[Finding]:
    """The minimum is not there, none is on its way, and the autoscaler asks for none: it still
    counts workers that were preempted."""
    missing = _missing(sight)
    if not missing or sight.scaling is None or sight.holdings is None:
        return
    coming = [worker for worker in sight.holdings.workers if not worker.runs]
    stalled = [kind for kind in missing if not sight.scaling.asked.get(kind)]
    stalled = [kind for kind in stalled if kind not in {worker.node_type for worker in coming}]
    stalled = [kind for kind in stalled if kind not in sight.scaling.failures]
    # Slices that are there and did not join are another state.
    stalled = [kind for kind in stalled if not _unjoined_of(sight, kind)]
    if not stalled:
        return
    lost = Counter(
        thing.state
        for thing in sight.holdings.of(Kind.SLICE, Kind.VM)
        if not thing.alive and not thing.head and thing.node_type in stalled
    )
    joined = sight.observed.joined
    there = _count(joined, "worker") if joined else "only the head"
    gone = "".join(f", {count} {state}" for state, count in lost.items())
    wanted = ", ".join(f"{missing[kind]} {kind}" for kind in stalled)
    yield Finding(
        state=LOST,
        found=f"{there} left{gone}; the autoscaler asks for none of the missing {wanted}",
        remedy=f"invoke restart --cluster {sight.cluster.name}",
        subjects=tuple(stalled),
    )


def launches_fail(sight: Sight) -> Iterator[Finding]:
    """Workers are missing because the cloud gives none; a restart would not help."""
    if sight.scaling is None:
        return
    eaten = bool(removable(_left(sight)))
    for kind in _missing(sight):
        if why := sight.scaling.failures.get(kind):
            yield Finding(
                state="launches fail",
                found=f"{kind}: {why[-1][:200]}",
                remedy=f"invoke gc --cluster {sight.cluster.name}"
                if eaten
                else f"invoke tail-logs --cluster {sight.cluster.name} --no-follow",
                subjects=(kind,),
            )


def half_registered(sight: Sight) -> Iterator[Finding]:
    """A slice runs, and some of its machines, or all, never joined: no job can use it."""
    for thing, joined in _unjoined(sight):
        if thing.created is None or sight.now - thing.created < SETTLED:
            continue
        count = len(thing.addresses)
        what = "the machine" if count == 1 else f"{joined} of the {count} machines"
        yield Finding(
            state="half-registered slice" if joined else "unregistered slice",
            found=f"{what} of {thing.name} joined" if joined else f"{thing.name} never joined",
            remedy=_anew(sight, thing) if thing.by_hand else _delete(sight, thing),
            subjects=(thing.name,),
        )


def left_behind(sight: Sight) -> Iterator[Finding]:
    """Preempted, suspended and stopped things that eat quota, and rules of nodes that are gone."""
    found = removable(_left(sight))
    if found:
        counted = Counter(f"{one.holding.state} {one.holding.kind}" for one in found)
        text = ", ".join(f"{count} {what}" for what, count in counted.items())
        yield Finding(
            state="leftovers",
            found=text.replace("in force ", "orphaned "),
            remedy=f"invoke gc --cluster {sight.cluster.name}",
            subjects=tuple(one.holding.name for one in found),
        )


def versions_differ(sight: Sight) -> Iterator[Finding]:
    """Ray of two versions does not talk: a worker does not join, a submission fails."""
    head = sight.observed.ray_version
    restart = f"invoke restart --cluster {sight.cluster.name}"
    if head and sight.ours and head != sight.ours:
        yield Finding(
            state="version skew",
            found=f"the head runs Ray {head}, this machine has {sight.ours}",
            remedy=restart,
        )
    for name, seen in sorted(sight.nodes.items()):
        if head and seen.inside.ray and seen.inside.ray != head:
            yield Finding(
                state="version skew",
                found=f"{name} has Ray {seen.inside.ray}, the head runs {head}",
                remedy=_renew(sight, name),
                subjects=(name,),
            )


def images_differ(sight: Sight) -> Iterator[Finding]:
    """Something runs another image than the config names."""
    seen, restart = sight.observed, f"invoke restart --cluster {sight.cluster.name}"
    if seen.answers and seen.wanted_digest and seen.image_digest != seen.wanted_digest:
        yield Finding(
            state="image drift",
            found=f"the head runs {_short(seen.image_digest)}, not {_short(seen.wanted_digest)}",
            remedy=restart,
        )
    head = sight.nodes.get(sight.cluster.name)
    for name, node in sorted(sight.nodes.items()):
        image = node.inside.image
        if head and head.inside.image and image and image != head.inside.image:
            yield Finding(
                state="image drift",
                found=f"{name} runs {image}, the head {head.inside.image}",
                remedy=_renew(sight, name),
                subjects=(name,),
            )
    if seen.answers and seen.config_hash and seen.config_hash != seen.wanted_hash:
        yield Finding(
            state="config drift",
            found="it was started with another config than the generated one",
            remedy=restart,
        )


def disk_nearly_full(sight: Sight) -> Iterator[Finding]:
    """Ray spills no object to a full disk, and jobs fail."""
    for name, seen in sorted(sight.nodes.items()):
        for room in seen.rooms:
            if room.nearly_full:
                _, _, worker = name.partition("/")
                which = f" --node {worker}" if worker else ""
                yield Finding(
                    state="disk nearly full",
                    found=f"{name}: {room.mount} is {room.used:.0%} full, "
                    f"{room.free / GIB:.1f} GiB are free",
                    remedy=f"invoke ssh --cluster {sight.cluster.name}{which} -- "
                    "'docker system prune --force; sudo du -xh -d2 / | sort -h | tail'",
                    subjects=(name,),
                )


KNOWN: Mapping[str, State] = {
    "rollout": unfinished_rollout,
    "head": head_silent,
    "idle workers": no_head_but_workers,
    "endings": still_ending,
    "one head": several_heads,
    "autoscaler": autoscaler_gone,
    "workers": workers_lost,
    "launches": launches_fail,
    "slices": half_registered,
    "leftovers": left_behind,
    "versions": versions_differ,
    "images": images_differ,
    "bucket": bucket_elsewhere,
    "disks": disk_nearly_full,
}
"""All of them, by what they look at, in the order in which one mends them."""

PASSING = frozenset({LOST})
"""What may be gone a moment later: the autoscaler looks at its workers every few seconds."""


def findings(sight: Sight) -> tuple[Finding, ...]:
    """Every known state that the cluster is in; none of one that a rollout is changing now, for
    what it does about them would be done twice."""
    if sight.in_hand:
        return ()
    return tuple(finding for state in KNOWN.values() for finding in state(sight))


def _headless(sight: Sight) -> bool:
    """Whether it is certain that there is no head."""
    heads = sight.holdings.heads if sight.holdings else ()
    return not (heads or sight.observed.head or sight.observed.problem)


def _left(sight: Sight) -> Sequence[Leftover]:
    if sight.holdings is None:
        return ()
    return leftovers(sight.config.identity, sight.holdings, now=sight.now)


def _missing(sight: Sight) -> dict[str, int]:
    """How many workers of each type are missing of the minimum."""
    seen = sight.observed
    if not seen.answers:
        return {}
    lacking = {
        kind: wanted - seen.workers.get(kind, 0) for kind, wanted in seen.wanted_workers.items()
    }
    return {kind: count for kind, count in lacking.items() if count > 0}


def _unjoined(sight: Sight) -> Iterator[tuple[Holding, int]]:
    """The slices and VMs that run and have machines that did not join, with how many did."""
    if not sight.observed.answers or sight.holdings is None:
        return
    joined = {member.address for member in sight.observed.members}
    for thing in sight.holdings.workers:
        count = len(joined & set(thing.addresses))
        if thing.runs and count < len(thing.addresses):
            yield thing, count


def _unjoined_of(sight: Sight, kind: str) -> bool:
    return any(thing.node_type == kind for thing, _ in _unjoined(sight))


def _renew(sight: Sight, node: str) -> str:
    """How a node gets the image of its head: one that was added by hand, alone."""
    worker = node.partition("/")[2].partition("#")[0]
    for thing in sight.holdings.workers if sight.holdings else ():
        if thing.by_hand and worker and thing.name == f"ray-{sight.config.identity}-{worker}":
            return _anew(sight, thing)
    return f"invoke restart --cluster {sight.cluster.name}"


def _anew(sight: Sight, thing: Holding) -> str:
    name = short_name(sight.config.identity, thing.name)
    return f"invoke workers.init --cluster {sight.cluster.name} --name {name} --again"


def _delete(sight: Sight, thing: Holding) -> str:
    what = "tpus tpu-vm" if thing.kind is Kind.SLICE else "instances"
    project = sight.config.provider.get("project_id", "")
    return f"gcloud compute {what} delete {thing.name} --zone {thing.zone} --project {project}"


def _names(things: Sequence[Holding]) -> tuple[str, ...]:
    return tuple(thing.name for thing in things)


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _short(digest: str) -> str:
    return digest[: len("sha256:") + 12] or "an unknown image"
