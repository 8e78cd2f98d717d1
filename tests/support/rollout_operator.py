"""An operator's process that carries out a rollout on fake clusters, to be signalled and killed.

``python -m tests.support.rollout_operator STATE [CLUSTER STEP]`` drives the latest rollout of
the state folder STATE; it waits inside STEP of CLUSTER until there is a file STATE/go.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfleet.errors import RayfleetError
from rayfleet.rollout.ending import raise_for
from rayfleet.rollout.engine import Engine
from rayfleet.rollout.journal.store import Rollout, Rollouts
from rayfleet.rollout.model import Step
from rayfleet.rollout.performer import Task
from rayfleet.rollout.rehearsal import Rehearsal
from rayfleet.rollout.signals import Interrupted
from rayfleet.waiting import wait_until
from tests.support.processes import with_default_signals
from tests.support.rehearsals import Listener, place_of

OPERATOR = "olga@desk"
PATIENCE = 120.0


class OperatorProcess:
    """One running operator. ``there``: the file that says that it waits inside its step."""

    def __init__(self, state: Path, *where: str) -> None:
        argv = with_default_signals(sys.executable, "-m", __name__, str(state), *where)
        self._process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for its end: exit code (minus the signal that killed it) and stderr."""
        _, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, err

    def close(self) -> None:
        """End it, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=PATIENCE)


@contextmanager
def operator(rollout: Rollout, cluster: str, step: Step) -> Iterator[OperatorProcess]:
    """A process that carries ``rollout`` out and is inside ``step`` of ``cluster``."""
    state = place_of(rollout)
    process = OperatorProcess(state, cluster, step.value)
    try:
        wait_until(
            lambda: (state / "there").exists() or process._process.poll() is not None,
            what=f"{step} of {cluster}",
            timeout=PATIENCE,
            interval=0.02,
        )
        yield process
    finally:
        process.close()


def let_go(rollout: Rollout) -> None:
    """Let what waits inside a step go on, now and from now on."""
    (place_of(rollout) / "go").touch()


def main(state: Path, cluster: str = "", step: str = "") -> int:
    """Carry it out; the exit code."""

    def entered(at: Step, task: Task) -> None:
        if (task.target.cluster, at.value) == (cluster, step):
            (state / "there").touch()
            wait_until(
                (state / "go").exists, what="the word to go on", timeout=PATIENCE, interval=0.01
            )

    rollout = Rollouts(state).open()
    clusters = Rehearsal(state, operator=OPERATOR, entered=entered)
    engine = Engine(rollout, clusters, Listener(), operator=OPERATOR, poll=0.05)
    try:
        raise_for(rollout.plan, engine.run(), interrupted=engine.interrupted)
    except Interrupted as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)
    except RayfleetError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
