"""Who hears of a rollout that this process drives."""

from __future__ import annotations

from datetime import datetime

from rayfleet.console import Console
from rayfleet.fleet.model import Notify
from rayfleet.rollout.model import Plan
from rayfleet.rollout.tell.chorus import Chorus, Listener
from rayfleet.rollout.tell.events import Events
from rayfleet.rollout.tell.piped import Piped
from rayfleet.rollout.tell.table import LiveTable
from rayfleet.rollout.tell.webhook import Webhook


def audience(
    plan: Plan,
    console: Console,
    *,
    as_json: bool,
    notify: Notify | None,
    report: str = "",
    begun: datetime | None = None,
) -> Chorus:
    """The listeners of one run, to be used as a context manager around the engine's run.

    With ``as_json`` events go to stdout, and lines instead of a table to stderr, where both may
    be one terminal. ``report`` is the path of the page. ``begun`` is when a rollout that is
    taken up again began.
    """
    listeners: list[Listener] = []
    if as_json:
        listeners += [
            Events(plan, console.data, report=report),
            Piped(plan, console.say, begun=begun),
        ]
    else:
        listeners.append(LiveTable(plan, console, begun=begun))
    if notify is not None:
        listeners.append(Webhook(notify, plan, say=console.say, report=report))
    return Chorus(*listeners, say=console.say)
