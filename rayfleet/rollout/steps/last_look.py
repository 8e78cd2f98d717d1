"""The last look at a head before it goes: between QUIESCE and the end of the head there may be
seconds, or a night and another process, and its users have gone on."""

from __future__ import annotations

from dataclasses import replace

from rayfleet.errors import Unreachable
from rayfleet.rollout.model import Output, Step, owed_document, owed_of
from rayfleet.rollout.steps.quiesce import Quieting
from rayfleet.rollout.steps.saving import snapshot
from rayfleet.rollout.steps.site import Site


def last_look(site: Site) -> Output:
    """Before a head that is there goes: save and quiet what has come since the jobs were saved.

    This process itself must have seen what runs on the head; what an earlier one saw may be
    hours old. Where it has, a head that answers no more is no obstacle.

    Raises:
        Unreachable: the head does not tell, and this process has never seen what it has.
        IncompleteBackup: a job that came since could not be saved.
        Locked: another rollout has the head.
    """
    before = owed_document(site.task.owed)
    if not site.backups:
        taken = snapshot(site)
        if not taken["backup"]:
            return {}  # on the way back, of a head that tells nothing
        note = {"backup": taken["backup"], "owed": taken["owed"]}
        site.note(note)
        notes = (*site.task.notes, note)
        site = replace(site, task=replace(site.task, notes=notes, owed=owed_of(taken)))
    work = Quieting.begin(site)
    known = site.cluster.name in site.links.seen
    silent = known and "problem" in site.output(Step.QUIESCE)
    problem = work.run(patience=0.0) if silent else work.run()
    if problem and not (work.saw or work.gone):
        if not (known or site.back or site.repairs):
            raise _unseen(site, problem)
        site.narrate(f"{problem}; what came since the jobs were saved is not known, going on")
    found = work.result(problem)
    if found["owed"] != before:
        return found
    return {name: found[name] for name in ("backup", "problem") if name in found}


def _unseen(site: Site, problem: str) -> Unreachable:
    name, rollout = site.cluster.name, site.task.plan.id
    flags = f"{rollout} --cluster {name}"
    return Unreachable(
        f"{name}: its head does not tell which jobs came since they were saved",
        why=f"{problem}; it is left as it is, because they would be lost",
        next_step=f"when it answers: invoke rollouts.retry {flags}; without what came since: "
        f"invoke rollouts.unlock {flags}, then: "
        f"invoke restart --cluster {name} --unhealthy repair",
    )
