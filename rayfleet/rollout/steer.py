"""``invoke rollouts.resume | pause | promote | …``: ask something of a rollout, and carry it out
here where nobody else does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rayfleet.cluster.head import Head
from rayfleet.cluster.lease import (
    Holdable,
    Lease,
    Names,
    held_as,
    lease_of,
    release_cluster,
)
from rayfleet.cluster.lifecycle import Lifecycle
from rayfleet.cluster.mark import Mark, read_mark, remove_mark
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, UnknownCluster, UsageError
from rayfleet.fleet.model import Fleet
from rayfleet.fleet.select import select_clusters
from rayfleet.job.request import operator
from rayfleet.project import Project
from rayfleet.rollout import verbs
from rayfleet.rollout.drive import drive, require_clusters, require_fleet
from rayfleet.rollout.ending import raise_for, without_jobs
from rayfleet.rollout.journal.store import Rollout, Rollouts
from rayfleet.rollout.performer import Performer
from rayfleet.rollout.requests import Verb
from rayfleet.rollout.state import GOOD, ClusterState, Outcome, Result, State
from rayfleet.rollout.tell.words import count
from rayfleet.rollout.verbs import Answer, Preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """One operator at one terminal. ``fleet`` loads the fleet file when it is needed;
    ``performer`` as for :func:`drive`.

    Every method takes the id of a rollout or how it begins; empty means the latest that is not
    finished, else the latest. Clusters are names or globs; none means all that it fits.
    """

    project: Project
    console: Console
    fleet: Callable[[], Fleet]
    as_json: bool = False
    performer: Performer | None = None

    def resume(self, rollout_id: str) -> None:
        """Go on where the rollout was paused or its run died.

        Raises:
            UsageError: it is finished.
            Locked: another process carries it out.
            RayfleetError: how it ended, with the next command.
        """
        rollout = self._open(rollout_id)
        result = rollout.state().result
        if result is not None:
            again = result in {Result.FAILED, Result.ABORTED}
            retry, show = (
                f"invoke rollouts.retry {rollout.id}",
                f"invoke rollouts.show {rollout.id}",
            )
            raise UsageError(
                f"rollout {rollout.id} is finished: {result}",
                why="it goes on only when it is asked to try again" if again else "all is done",
                next_step=retry if again else show,
            )
        self._drive(rollout)

    def pause(self, rollout_id: str) -> None:
        """Finish what is in hand and begin nothing new."""
        rollout = self._open(rollout_id)
        self._do(rollout, verbs.pause(rollout, by=operator()))

    def promote(self, rollout_id: str, *, full: bool) -> None:
        """End the bake at hand, take inconclusive gates as passed; ``full``: no bakes any more."""
        rollout = self._ours(rollout_id)
        self._require(verbs.preview(rollout, Verb.PROMOTE, by=operator(), full=full))
        self._do(rollout, verbs.promote(rollout, by=operator(), full=full))

    def abort(self, rollout_id: str) -> None:
        """Finish what is in hand, then end."""
        rollout = self._open(rollout_id)
        self._do(rollout, verbs.abort(rollout, by=operator()))

    def retry(self, rollout_id: str, clusters: Sequence[str]) -> None:
        """Try failed clusters again, from the step that failed."""
        rollout = self._ours(rollout_id)
        names = _chosen(rollout, clusters)
        self._require(verbs.preview(rollout, Verb.RETRY, names, by=operator()))
        self._do(rollout, verbs.retry(rollout, names, by=operator()))

    def skip(self, rollout_id: str, clusters: Sequence[str], *, yes: bool = False) -> None:
        """Leave clusters out; failed ones count no more. Ones that were changed stay as they are,
        which is asked about.

        Raises:
            Declined: nobody said yes.
            NotRestored: that was the last failure, and jobs of them are only in the vault.
        """
        rollout = self._open(rollout_id)
        names = _chosen(rollout, clusters)
        if lines := verbs.left_as_they_are(verbs.preview(rollout, Verb.SKIP, names, by=operator())):
            for line in lines:
                self.console.say(line)
            self.console.confirm(
                f"Leave {', '.join(names)} out all the same?",
                yes=yes,
                refused_next=f"invoke rollouts.skip {rollout.id}{_flags(names)} --yes, or: "
                f"invoke rollouts.retry {rollout.id}",
            )
        self._do(rollout, verbs.skip(rollout, names, by=operator()))
        if rollout.state().result is Result.WITHOUT_JOBS:
            raise_for(rollout.plan, rollout.state())

    def rollback(self, rollout_id: str, clusters: Sequence[str], *, yes: bool) -> None:
        """Take changed clusters back to what they ran before, with their jobs.

        That is a success when they are back, whatever the rollout itself has come to.

        Raises:
            Declined: nobody said yes.
            RayfleetError: one of them is not back, with the next command.
        """
        rollout = self._ours(rollout_id)
        names = _chosen(rollout, clusters)
        self._require(verbs.preview(rollout, Verb.ROLLBACK, names, by=operator()))
        asked = ", ".join(names) if names else f"all that rollout {rollout.id} has changed"
        self.console.confirm(
            f"Take back {asked}, to the image and config of before?",
            yes=yes,
            refused_next=f"invoke rollouts.rollback {rollout.id}{_flags(names)} --yes",
        )
        try:
            self._do(rollout, verbs.rollback(rollout, names, by=operator()))
        except RayfleetError:
            back = _taken_back(rollout.state(), names)
            if not back:
                raise
            self.console.say(f"rolled back: {', '.join(back)}; next: invoke status")
            ways = [each.back for each in back.values() if each.back is not None]
            if any(way.outcome is Outcome.WITHOUT_JOBS for way in ways):
                raise without_jobs(rollout.plan, back) from None

    def unlock(self, rollout_id: str, clusters: Sequence[str], *, yes: bool) -> None:
        """End leases that nobody works by: of the rollout, or whoever's on ``clusters``.

        Raises:
            UsageError: neither a rollout nor a cluster is named.
            Locked: a living process works by one of them.
            Declined: nobody said yes.
        """
        if not rollout_id and not clusters:
            raise UsageError(
                "neither a rollout nor a cluster is named",
                why="a cluster that is given free stays as it is, maybe half changed",
                next_step="invoke rollouts.list, then: invoke rollouts.unlock ID",
            )
        held = self._leases(rollout_id, clusters)
        marks = self._marks([cluster.name for _, cluster in held], clusters)
        if not held and not marks:
            self.console.say("no rollout has any of them; next: invoke rollouts.list")
            return
        for lease, _ in held:
            self.console.say(f"{lease.cluster}: {lease.describe(time.time())}")
        for name, mark in marks.items():
            self.console.say(f"{name}: its head bears the mark of {mark.describe()}")
        names = {*marks, *(lease.cluster for lease, _ in held)}
        again = (f" {rollout_id}" if rollout_id else "") + _flags(clusters)
        self.console.confirm(
            f"Release {count(len(names), 'cluster')}? What their rollout still owes them stays"
            " undone: a start, or jobs that are in the vault.",
            yes=yes,
            refused_next=f"invoke rollouts.unlock{again} --yes",
        )
        for lease, cluster in held:
            self._end(lease, cluster)
        for name, mark in marks.items():
            with self._head(name) as head:
                remove_mark(head, rollout=mark.rollout)
        for name in sorted(names):
            self.console.say(f"{name} is released; {self._what_is_left(name)}")

    def _marks(self, held: Sequence[str], names: Sequence[str]) -> dict[str, Mark]:
        """What the heads bear, of operators of other machines too, as far as they answer."""
        fleet = self.fleet()
        names = [name for name in names if name not in held]
        chosen = [one.name for one in select_clusters(fleet, names, every=False)] if names else []
        found: dict[str, Mark] = {}
        for name in dict.fromkeys((*held, *chosen)):
            try:
                with self._head(name) as head:
                    mark = read_mark(head)
            except RayfleetError as error:
                self.console.say(f"{name}: whether its head is marked is not known: {error.what}")
                continue
            if mark is not None:
                found[name] = mark
        return found

    def _head(self, name: str) -> Head:
        fleet = self.fleet()
        if name not in fleet.clusters:
            raise UnknownCluster(f"{name} is not in the fleet file any more")
        life = Lifecycle(self.project, fleet, self.console)
        return life.open_head(fleet.clusters[name])

    def _leases(self, rollout_id: str, names: Sequence[str]) -> list[tuple[Lease, Holdable]]:
        """The leases that are meant, each with its cluster."""
        places: list[Holdable] = []
        if rollout_id:
            rollout = self._open(rollout_id)
            rollout_id, targets = rollout.id, rollout.plan.targets
            chosen = _chosen(rollout, names) or list(targets)
            places += [Names(name=name, identity=targets[name].identity) for name in chosen]
        else:
            # By its lease too: it may have left the fleet file.
            left = {name: held_as(self.project, name) for name in names}
            places += [place for found in left.values() for place in found]
            rest = [name for name in names if not left[name]]
            places += select_clusters(self.fleet(), rest, every=False) if rest else ()
        leases = ((lease_of(self.project, place), place) for place in places)
        return [(one, place) for one, place in leases if one and rollout_id in {"", one.rollout}]

    def _what_is_left(self, name: str) -> str:
        if name in self.fleet().clusters:
            vault = f"invoke jobs.vault --cluster {name}"
            return f"next: invoke status --cluster {name}; its backups: {vault}"
        return (
            "it is not in the fleet file any more. Machines of it may still run: to look at them"
            f" or stop them, put {name} back into it. Its backups: invoke jobs.vault"
        )

    def _end(self, lease: Lease, cluster: Holdable) -> None:
        known = {rollout.id: rollout for rollout in Rollouts(self.project.state).all()}
        if lease.rollout in known:
            verbs.unlock(self.project, known[lease.rollout], [cluster.name])
            return
        # Of a rollout that is not on this disk: nobody here can go on with it.
        if not lease.stale(time.time()):
            raise lease.refusal(time.time())
        release_cluster(self.project, cluster)

    def _open(self, rollout_id: str) -> Rollout:
        return Rollouts(self.project.state).open(rollout_id)

    def _ours(self, rollout_id: str) -> Rollout:
        """The rollout, which can be carried out here: nothing is asked of one that cannot."""
        rollout = self._open(rollout_id)
        require_fleet(self.project, rollout)
        return rollout

    def _require(self, wish: Preview) -> None:
        """Refuse what would have to be done to clusters that have left the fleet file."""
        require_clusters(self.fleet(), wish.rollout, wish.after)

    def _do(self, rollout: Rollout, answer: Answer) -> None:
        self.console.say(f"rollout {rollout.id}: {answer.text}")
        if answer.drive:
            self._drive(rollout)

    def _drive(self, rollout: Rollout) -> None:
        drive(
            self.project,
            self.fleet(),
            self.console,
            rollout,
            as_json=self.as_json,
            performer=self.performer,
        )


def _chosen(rollout: Rollout, names: Sequence[str]) -> list[str]:
    """The clusters of the plan that ``names``, exact or globs, name, in its order."""
    known = list(rollout.plan.targets)
    missing = [name for name in names if not any(fnmatchcase(one, name) for one in known)]
    if missing:
        raise UnknownCluster(
            f"rollout {rollout.id} has no cluster {', '.join(missing)}",
            why=f"it has {count(len(known), 'cluster')}: {', '.join(known)}",
            next_step=f"invoke rollouts.show {rollout.id}",
        )
    return [one for one in known if any(fnmatchcase(one, name) for name in names)]


def _taken_back(state: State, names: Sequence[str]) -> dict[str, ClusterState]:
    """The clusters that were to go back, if that is over and all of them are."""
    meant = {
        name: each
        for name, each in state.clusters.items()
        if (name in names if names else each.back is not None)
    }
    done = all(each.back is not None and each.back.outcome in GOOD for each in meant.values())
    return meant if state.result is not None and done else {}


def _flags(names: Sequence[str]) -> str:
    return "".join(f" --cluster {name}" for name in names)
