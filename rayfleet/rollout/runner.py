"""One cluster's way in one direction: hold it, do its steps, tell the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from rayfleet.errors import Locked, PrerequisiteMissing, RayfleetError
from rayfleet.job.redaction import redacted
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.model import TOUCHING, Direction, Output, Plan, Step, owed_after, steps_of
from rayfleet.rollout.performer import Inconclusive, LeftAlone, LeftFleet, Performer, Task
from rayfleet.rollout.state import GOOD, ClusterState, Outcome, Way, first_owed

THROUGH = GOOD | {Outcome.UNTOUCHED, Outcome.LOCKED, Outcome.SKIPPED}
"""After these a cluster needs nothing of its rollout any more. One that failed does: its jobs
may be in the vault."""


class JournalRefused(Exception):
    """A record, or a lease, could not be written; ``error`` says why. No RayfleetError, so that
    no step takes it for a failure of its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Write(Protocol):
    """Appends a record of one cluster in one direction.

    Raises:
        JournalRefused: it could not be written.
    """

    def __call__(
        self, kind: Kind, *, step: Step | None = None, data: Output | None = None
    ) -> None: ...


class ClusterRun:
    """Takes one cluster along, in the calling thread.

    After :meth:`run`, ``defect`` is what a step raised that is no RayfleetError, and ``refused``
    why the journal could not be written; None when it was not so.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: str,
        direction: Direction,
        state: ClusterState,
        *,
        performer: Performer,
        write: Write,
        narrate: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.direction = direction
        self.defect: BaseException | None = None
        self.refused: Exception | None = None
        self._plan = plan
        self._target = plan.targets[cluster]
        self._way = state.way(direction) or Way()
        self._forward = state.forward or Way()
        self._owed = self._way.owed
        if direction is Direction.BACK and not self._owed:
            self._owed = self._forward.owed
        self._held = state.held
        self._state = state
        self._performer = performer
        self._append = write
        self._narrate = narrate
        self._touched = direction is Direction.BACK or self._way.touched

    def run(self) -> None:
        """Do what is not done yet, until the cluster has ended in this direction. Never raises."""
        try:
            outcome = self._held_steps()
            if self._held and outcome in THROUGH:
                self._release()
        except JournalRefused as error:
            self.refused = self.refused or error.error
        except BaseException as error:  # handed to the engine, which raises it
            self.defect = self.defect or error

    def _held_steps(self) -> Outcome:
        outcome: Outcome | None = None
        try:
            with self._performer.hold(self._plan, self._target) as lease:
                self._take_up(lease)
                outcome, why = self._steps()
                self._end(outcome, why)
        except PrerequisiteMissing as error:
            # No fault of the cluster: this machine cannot write down that it has it.
            raise JournalRefused(error) from error
        except RayfleetError as error:
            if outcome is not None:
                raise
            outcome = self._failed(self._next_step(), error)
            self._end(outcome)
        return outcome

    def _take_up(self, lease: str) -> None:
        """Go on where the way stands, or from the first step if the cluster was free meanwhile."""
        self._write(Kind.HELD, data={"lease": lease})
        if self._state.was_free(lease):
            self._way = self._way.held_anew()
        self._held = True
        self._touched = self.direction is Direction.BACK or self._way.touched_again

    def _steps(self) -> tuple[Outcome, str]:
        """Do the steps that are not done; how it ended, and why if it was left alone."""
        outputs = dict(self._way.outputs)
        for step in steps_of(self._target, self._plan.settings, self.direction):
            if step in outputs:
                continue
            try:
                outputs[step] = self._step(step, outputs)
            except JournalRefused:
                raise
            except LeftAlone as error:
                return Outcome.SKIPPED, redacted(error.what)
            except RayfleetError as error:
                return self._failed(step, error), ""
            except BaseException as error:
                self.defect = error
                return self._broken(step, error), ""
        lost = outputs.get(Step.WATCH, {}).get("lost")
        return (Outcome.WITHOUT_JOBS if lost else Outcome.DONE), ""

    def _step(self, step: Step, outputs: dict[Step, Output]) -> Output:
        notes = self._way.notes if self._way.step is step else ()
        if step is Step.QUIESCE:
            self._owed = first_owed(replace(self._way, outputs=outputs, owed=self._owed), step)
        task = Task(
            plan=self._plan,
            target=self._target,
            direction=self.direction,
            outputs=dict(outputs),
            notes=notes,
            owed=self._owed,
            changed=self._way.touched,
        )
        self._write(Kind.INTENT, step=step)
        self._touched = self._touched or step in TOUCHING

        def note(data: Output) -> None:
            self._write(Kind.NOTE, step=step, data=data)
            self._owed = owed_after(self._owed, step, data)

        try:
            output = self._performer.perform(step, task, note=note, narrate=self._narrate)
        finally:
            if self.refused is not None:  # however the step took it
                raise JournalRefused(self.refused)
        self._write(Kind.DONE, step=step, data=output)
        self._owed = owed_after(self._owed, step, output)
        return output

    def _failed(self, step: Step, error: RayfleetError) -> Outcome:
        data: dict[str, object] = {
            "what": redacted(error.what),
            "why": redacted(error.why),
            "next": redacted(error.next_step),
            "code": error.exit_code,
        }
        if isinstance(error, LeftFleet):
            data["left_fleet"] = self._plan.fleet
        self._write(Kind.FAILED, step=step, data=data)
        if isinstance(error, Inconclusive):
            return Outcome.INCONCLUSIVE
        if self._touched:
            return Outcome.FAILED
        return Outcome.LOCKED if isinstance(error, Locked) else Outcome.UNTOUCHED

    def _broken(self, step: Step, error: BaseException) -> Outcome:
        # The type only: nobody knows what the text of a defect holds.
        data = {
            "what": f"a defect of rayfleet: {type(error).__name__}",
            "why": "",
            "next": f"invoke rollouts.retry {self._plan.id}",
            "code": 1,
        }
        self._write(Kind.FAILED, step=step, data=data)
        return Outcome.FAILED if self._touched else Outcome.UNTOUCHED

    def _end(self, outcome: Outcome, why: str = "") -> None:
        data = {"outcome": outcome.value}
        self._write(Kind.CLUSTER, data=data | {"why": why} if why else data)

    def _release(self) -> None:
        try:
            self._performer.release(self._plan, self._target)
        except RayfleetError as error:
            self._narrate(f"cannot give it free yet: {error.what}")
            return
        self._write(Kind.RELEASED)

    def _next_step(self) -> Step:
        steps = steps_of(self._target, self._plan.settings, self.direction)
        return next((step for step in steps if step not in self._way.outputs), steps[-1])

    def _write(self, kind: Kind, *, step: Step | None = None, data: Output | None = None) -> None:
        if self.refused is not None:
            raise JournalRefused(self.refused)
        try:
            self._append(kind, step=step, data=data)
        except JournalRefused as error:
            self.refused = error.error
            raise


def wanted(state: ClusterState, *, aborted: bool) -> bool:
    """Whether something is to be done with the cluster when its rollout goes on. Of one that was
    aborted that is only what an operator has asked for since."""
    ways = [way for way in (state.forward, state.back) if way is not None]
    if aborted:
        return any(way.outcome is None and (way.again or way.begun is None) for way in ways)
    if any(way.outcome is Outcome.INCONCLUSIVE for way in ways[-1:]):
        return True  # it is looked at again
    return not ways or any(way.outcome is None and not way.left_out for way in ways)


def through(state: ClusterState) -> bool:
    """Whether the cluster has ended and needs nothing of its rollout any more."""
    way = state.back or state.forward
    return way is not None and way.outcome in THROUGH
