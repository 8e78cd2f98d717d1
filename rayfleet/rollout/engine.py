"""Carries out a rollout: what the state machine decides, written ahead and in threads.

One thread per cluster in flight; the calling thread decides, listens to other terminals through
the journal, and tells the audience.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from rayfleet.errors import PrerequisiteMissing, RayfleetError, UsageError
from rayfleet.rollout.bake import Watch
from rayfleet.rollout.fold import apply, begin
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.journal.store import Rollout, myself
from rayfleet.rollout.machine import Decision, decide
from rayfleet.rollout.model import Direction, Output, Step
from rayfleet.rollout.performer import Audience, Performer
from rayfleet.rollout.requests import Verb
from rayfleet.rollout.runner import ClusterRun, JournalRefused, through
from rayfleet.rollout.signals import deafen, listening
from rayfleet.rollout.state import GOOD, Outcome, State

POLL_SECONDS = 0.5
"""How often the journal is looked at for what other terminals ask."""


class Engine:
    """Drives one rollout until it is paused or finished.

    ``operator`` is ``user@host``. ``clock`` gives seconds since 1970; ``poll`` is in seconds.
    """

    def __init__(
        self,
        rollout: Rollout,
        performer: Performer,
        audience: Audience,
        *,
        operator: str,
        clock: Callable[[], float] = time.time,
        poll: float = POLL_SECONDS,
    ) -> None:
        self._rollout = rollout
        self._plan = rollout.plan
        self._performer = performer
        self._audience = audience
        self._operator = operator
        self._clock = clock
        self._poll = poll
        self._state = begin(self._plan)
        self._flying: dict[str, ClusterRun] = {}
        self._news: queue.SimpleQueue[ClusterRun | None] = queue.SimpleQueue()
        self._watches: dict[int, Watch] = {}
        self._asked = ""
        self._asked_told = False
        self._defect: BaseException | None = None
        self._refused: Exception | None = None
        self._closed = False
        self._deadline: float | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a signal has asked for the pause."""
        return bool(self._asked)

    def run(self) -> State:
        """Go on with the rollout until it is paused or finished; one that is finished is left
        as it is.

        After Interrupted threads may still be at work: the process has to end at once.

        Raises:
            Locked: another process carries it out.
            PrerequisiteMissing: the journal cannot be written; it is valid.
            Interrupted: a second signal came.
        """
        with (
            self._rollout.drive(),
            listening(self._hear_signal, rollout=self._rollout.id),
            self._rollout.journal.followed(),
        ):
            for record in self._rollout.journal.fresh():
                self._state = apply(self._plan, self._state, record)
            try:
                if self._state.result is None:
                    self._drive()
            finally:
                self._closed = True
                for watch in self._watches.values():
                    watch.end()
        return self._state

    def _drive(self) -> None:
        try:
            self._write(Kind.BEGUN, data=myself(self._operator))
            self._give_free()
            while not self._advance():
                self._wait()
        except JournalRefused as refused:
            self._refused = self._refused or refused.error
        except Exception as error:
            self._defect = self._defect or error
        while self._flying:
            self._drained(self._poll)
            # What has ended the run is raised below, and may strike here once more.
            with suppress(Exception):
                self._catch_up()
        if self._refused is not None:
            raise self._no_journal(self._refused) from self._refused
        if self._defect is not None:
            self._note_defect(self._defect)
            raise self._defect

    def _advance(self) -> bool:
        """Do all that can be done now; True when the run has ended."""
        while True:
            if self._ending():
                return not self._flying
            self._look_after_bakes()
            decision = self._decision()
            if decision.bake is not None:
                self._begin_bake(decision.bake)
            elif decision.baked is not None and self._may_end(decision.baked):
                self._write(Kind.BAKED, data={"wave": decision.baked})
            elif decision.start:
                for cluster, direction in decision.start:
                    self._start(cluster, direction)
            elif self._flying:
                return False
            elif decision.result is not None:
                self._give_free()
                if self._close(Kind.FINISHED, {"result": decision.result.value}):
                    return True
            elif decision.pause:
                if self._close(Kind.PAUSED, {"reason": decision.pause}):
                    return True
            elif decision.wait_until is None and not self._watches:
                raise RuntimeError("nothing to do, and nothing to wait for")
            else:
                return False

    def _close(self, kind: Kind, data: Output) -> bool:
        """Write the end of the run. False when it goes on after all, because somebody has asked
        for something right before: that is asked for again, now that it can be heard."""
        end = self._append(kind, data=data)
        missed = [
            record.data
            for record in self._catch_up()
            if record.number < end.number and record.data.get("verb") != Verb.PAUSE
        ]
        for request in missed:
            self._write(Kind.REQUEST, data=request)
        if not missed or self._state.result is not None:
            return True
        self._write(Kind.BEGUN, data=myself(self._operator))
        return False

    def _decision(self) -> Decision:
        decision = decide(self._plan, self._state, now=self._clock(), in_flight=self._flying)
        self._deadline = decision.wait_until
        return decision

    def _wait(self) -> None:
        """Until there is something to decide: a cluster has ended, somebody has asked for
        something, a time is up."""
        while True:
            left = 0.0 if self._deadline is None else self._deadline - self._clock()
            ended = self._drained(min(self._poll, left) if left > 0 else self._poll)
            asked = bool(self._catch_up())
            if self._asked and not self._asked_told and not self._ending():
                self._asked_told = True
                self._write(Kind.REQUEST, data={"verb": "pause", "clusters": [], "by": self._asked})
                asked = True
            due = self._deadline is not None and self._clock() >= self._deadline
            if ended or asked or due or self._watches:
                return

    def _ending(self) -> bool:
        return self._refused is not None or self._defect is not None

    def _drained(self, timeout: float) -> bool:
        """Take in what the threads have told; True when one of them has ended."""
        ended = False
        try:
            news = self._news.get(timeout=timeout)
            while True:
                if news is not None:
                    ended = True
                    self._land(news)
                news = self._news.get_nowait()
        except queue.Empty:
            return ended

    def _land(self, run: ClusterRun) -> None:
        del self._flying[run.cluster]
        self._refused = self._refused or run.refused
        self._defect = self._defect or run.defect

    def _catch_up(self) -> list[Record]:
        """Take in what was written; the requests that are among it."""
        asked: list[Record] = []
        for record in self._rollout.journal.fresh():
            self._state = apply(self._plan, self._state, record)
            self._audience.hear(record, self._state)
            if record.kind is Kind.REQUEST:
                asked.append(record)
        if asked:
            self._give_free()
        return asked

    def _start(self, cluster: str, direction: Direction) -> None:
        def write(kind: Kind, *, step: Step | None = None, data: Output | None = None) -> None:
            self._append(kind, cluster=cluster, direction=direction, step=step, data=data)
            self._news.put(None)

        def go() -> None:
            deafen()
            run.run()
            self._news.put(run)

        run = ClusterRun(
            self._plan,
            cluster,
            direction,
            self._state.clusters[cluster],
            performer=self._performer,
            write=write,
            narrate=lambda text: self._audience.detail(cluster, text),
        )
        threading.Thread(target=go, name=f"{cluster} {direction}", daemon=True).start()
        self._flying[cluster] = run

    def _begin_bake(self, wave: int) -> None:
        until = self._clock() + self._plan.settings.bake
        self._write(Kind.BAKING, data={"wave": wave, "until": until})

    def _may_end(self, wave: int) -> bool:
        """A bake that was not promoted ends when everybody has been found well."""
        watch = self._watches.get(wave)
        promoted = self._state.full or not self._state.baking.get(wave)
        return promoted or watch is None or watch.settled()

    def _look_after_bakes(self) -> None:
        baking = set(self._state.baking) - self._state.baked
        for wave in self._watches.keys() - baking:
            self._watches.pop(wave).end()
        for wave in baking - self._watches.keys():
            self._watches[wave] = Watch(
                [self._plan.targets[name] for name in self._well(wave)],
                self._performer.trouble,
                bake=self._plan.settings.bake,
                changed=lambda: self._news.put(None),
            )
        for wave, watch in self._watches.items():
            self._defect = self._defect or watch.defect
            for cluster, trouble in watch.take().items():
                if cluster in self._well(wave):
                    self._fail_while_baking(cluster, trouble)

    def _well(self, wave: int) -> list[str]:
        """The clusters of ``wave`` that were changed and are well."""
        return [
            name
            for name in self._plan.waves[wave].clusters
            if (state := self._state.clusters[name]).back is None
            and state.forward is not None
            and state.forward.outcome in GOOD
        ]

    def _fail_while_baking(self, cluster: str, trouble: str) -> None:
        data = {
            "what": f"{cluster} was well and is not any more",
            "why": trouble,
            "next": f"invoke status --cluster {cluster}",
            "code": 4,
        }
        self._write(Kind.FAILED, cluster=cluster, step=Step.GATES, data=data)
        self._write(Kind.CLUSTER, cluster=cluster, data={"outcome": Outcome.FAILED.value})

    def _give_free(self) -> None:
        """Release clusters that are through and still held: a kill came between, or an operator
        has skipped them."""
        for name, state in list(self._state.clusters.items()):
            if not (state.held and through(state)) or name in self._flying:
                continue
            try:
                self._performer.release(self._plan, self._plan.targets[name])
            except RayfleetError as error:
                self._audience.detail(name, f"cannot give it free: {error.what}")
            else:
                self._write(Kind.RELEASED, cluster=name)

    def _write(
        self, kind: Kind, *, cluster: str = "", step: Step | None = None, data: Output | None = None
    ) -> None:
        """Append a record from the calling thread, and take it in."""
        self._append(kind, cluster=cluster, step=step, data=data)
        self._catch_up()

    def _append(
        self,
        kind: Kind,
        *,
        cluster: str = "",
        direction: Direction = Direction.FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> Record:
        if self._closed:
            raise JournalRefused(RuntimeError("the run has ended"))
        try:
            return self._rollout.append(
                kind, cluster=cluster, direction=direction, step=step, data=data
            )
        except RayfleetError as error:
            raise JournalRefused(error) from error

    def _hear_signal(self, who: str) -> None:
        self._asked = self._asked or who
        self._news.put(None)

    def _note_defect(self, defect: BaseException) -> None:
        """Close the journal of a run that a defect has ended; if that fails too, the defect is
        what is raised."""
        reason = f"a defect of rayfleet: {type(defect).__name__}"
        try:
            self._write(Kind.PAUSED, data={"reason": reason})
        except Exception as error:
            defect.add_note(f"and the journal was not closed: {type(error).__name__}")

    def _no_journal(self, error: Exception) -> PrerequisiteMissing:
        cause, mend = type(error).__name__, f"free space in {self._rollout.folder}"
        if isinstance(error, RayfleetError):
            cause = f"{error.what}: {error.why}" if error.why else error.what
        if isinstance(error, UsageError):  # it is damaged
            mend = error.next_step
        return PrerequisiteMissing(
            f"rollout {self._rollout.id} cannot write down what it does",
            why=f"{cause}; what was in hand has stopped before its next step",
            next_step=f"{mend}, then: invoke rollouts.resume {self._rollout.id}",
        )
