"""Every error that a user can cause, with its exit code.

::

    RayfleetError                1  anything that went wrong
    ├── UsageError               1  bad arguments or a bad file; nothing was touched
    │   ├── FleetFileError       1  the fleet file has mistakes (all of them are listed)
    │   └── UnknownCluster       1  a --cluster that the fleet does not have
    ├── PrerequisiteMissing      1  something this machine lacks (engine, tool, disk)
    ├── ToolFailed               1  an external program or service refused
    ├── PartialFailure           2  some clusters or regions failed, others did not
    ├── NotSeen                  2  no line of a log was the one that was waited for
    ├── JobFailed                2  the job that was waited for ended as FAILED
    ├── NotStoppable             2  a job waits to start, and Ray stops it only then
    ├── Declined                 3  the operator said no, or --yes was needed
    ├── JobStopped               3  somebody stopped the job that was waited for
    ├── UnwantedLine             3  a line of a log is one that must not come
    ├── Drift                    4  generated files differ from the fleet
    ├── Unreachable              4  a head, registry or API does not answer
    │   └── JobLost              4  the head was replaced and knows the job no more
    ├── Locked                   5  another run works on the same thing
    ├── Inconclusive             6  a gate could not say yes or no in time
    ├── Paused                   6  a rollout waits for somebody to say how it goes on
    ├── NotRestored              7  jobs of a backup could not be given back
    ├── JobTimedOut            124  a job had not ended in time, as with timeout(1)
    └── Interrupted            130  a rollout was paused, or ended, by Ctrl-C

The base is Invoke's own ``Exit``, so that every host program, another repository's task file
included, prints one clear message and exits with the documented code, without a traceback.
A message names the thing, the cause and the next command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from invoke.exceptions import Exit

from rayfleet.harmless import printable


class RayfleetError(Exit):
    """Something went wrong; ``what`` went wrong, ``why``, and what to run ``next_step``.

    Never put a secret into any of the three. They may quote what a head, a job or a file says:
    the message only shows it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", next_step: str = "") -> None:
        self.what = what
        self.why = why
        self.next_step = next_step
        super().__init__(self.text(), code=self.exit_code)

    def text(self) -> str:
        """The whole message: one line, details below, the next command last."""
        head = f"error: {self.what}" + (f": {self.why}" if self.why else "")
        return printable(head + (f"\n  next: {self.next_step}" if self.next_step else ""))

    def __str__(self) -> str:
        return self.text()


class UsageError(RayfleetError):
    """Bad arguments or a bad file; nothing was touched."""


class FleetFileError(UsageError):
    """The fleet file has mistakes. ``problems`` holds one line each, ``file:line: text``; with
    ``more`` there are others that are not among them."""

    def __init__(
        self, path: str, problems: Sequence[str], *, next_step: str = "", more: bool = False
    ) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} mistake" + ("s" if len(self.problems) != 1 else "")
        count = f"more than {count}, of which these are some" if more else count
        super().__init__(
            f"{path} has {count}",
            why="\n  " + "\n  ".join(self.problems),
            next_step=next_step or "mend the lines above, then run: invoke fleet.lint",
        )


class UnknownCluster(UsageError):
    """A ``--cluster`` that the fleet does not have."""


class PrerequisiteMissing(RayfleetError):
    """Something that this machine lacks."""


class ToolFailed(RayfleetError):
    """An external program or service refused."""


class PartialFailure(RayfleetError):
    """Some clusters or regions failed while others did not."""

    exit_code = 2


class NotSeen(RayfleetError):
    """No line of a log was the one that was waited for."""

    exit_code = 2


class UnwantedLine(RayfleetError):
    """A line of a log is one that must not come."""

    exit_code = 3


class Declined(RayfleetError):
    """The operator said no, or was not there to say yes."""

    exit_code = 3


class Drift(RayfleetError):
    """Generated files differ from what the fleet file says."""

    exit_code = 4


class Unreachable(RayfleetError):
    """A head, a registry or an API does not answer."""

    exit_code = 4


class Locked(RayfleetError):
    """Another run works on the same thing."""

    exit_code = 5
