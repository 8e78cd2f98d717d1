"""Several listeners of a rollout as one."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.performer import Audience
from rayfleet.rollout.signals import Interrupted
from rayfleet.rollout.state import State


class Listener(Audience, Protocol):
    """An audience that has an end."""

    def close(self, *, hurry: bool = False) -> None:
        """The run is over: show what is still to be shown. With ``hurry`` the process is about
        to be ended, and nobody is waited for. May be called twice."""


class Chorus:
    """Passes everything on to its ``listeners``; ``say`` narrates a line.

    A listener that raises is a defect of it: that is told once, and it is left out from then
    on. Use it as a context manager around the engine's run, so that all are closed.
    """

    def __init__(self, *listeners: Listener, say: Callable[[str], None]) -> None:
        self._listeners = list(listeners)
        self._say = say

    def __enter__(self) -> Chorus:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(hurry=isinstance(error, Interrupted))

    def hear(self, record: Record, state: State) -> None:
        """A record was written."""
        self._each(lambda listener: listener.hear(record, state))

    def detail(self, cluster: str, text: str) -> None:
        """What a step is just doing. From any thread."""
        self._each(lambda listener: listener.detail(cluster, text))

    def close(self, *, hurry: bool = False) -> None:
        """Close all listeners, in their order."""
        self._each(lambda listener: listener.close(hurry=hurry))

    def _each(self, call: Callable[[Listener], None]) -> None:
        for listener in tuple(self._listeners):
            try:
                call(listener)
            except Interrupted:  # a signal that came just now, and is not the listener's
                raise
            except Exception as error:
                self._leave_out(listener, error)

    def _leave_out(self, listener: Listener, error: Exception) -> None:
        if listener not in self._listeners:  # another thread was faster
            return
        self._listeners.remove(listener)
        what = f"{type(listener).__name__} fails and is left out from now on"
        try:
            self._say(f"{what}: {type(error).__name__}: {error}")
        except OSError:
            return  # nobody reads the narration any more, and nothing depends on it
