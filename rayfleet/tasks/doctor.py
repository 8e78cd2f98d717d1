"""``invoke doctor``: what this machine lacks."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from rayfleet.tasks.edge import open_session


@task(auto_shortflags=False, help={"json": "Print JSON instead of a table."})
def doctor(context: Context, json: bool = False) -> None:
    """List what the tasks need and what is missing.

    What is checked depends on the fleet. Each missing thing is shown with the command that
    mends it. Exits with 1 when something is missing.
    """
    from rayfleet.doctor.examine import examine

    session = open_session(context)
    report = examine(session.fleet(), session.project)
    report.show(session.console, as_json=json)
    report.raise_missing()
