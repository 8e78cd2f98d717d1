"""Carries out the rollout in the folder that is named: python driver.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from rayfleet.rollout.engine import Engine
from rayfleet.rollout.journal.store import Rollouts
from rayfleet.rollout.rehearsal import Rehearsal
from rayfleet.rollout.state import Result
from rayfleet.rollout.tell.chorus import Chorus
from rayfleet.rollout.tell.events import Events


def main(folder: Path) -> int:
    """With the events of ``--json`` written beside it, as a pipeline would."""
    rollout = Rollouts(folder / "state").open()
    with (folder / "events.jsonl").open("a") as out:

        def write(line: str) -> None:
            print(line, file=out, flush=True)

        with Chorus(Events(rollout.plan, write), say=print) as audience:
            performer = Rehearsal(folder / "world")
            state = Engine(rollout, performer, audience, operator="bench@here").run()
    return 0 if state.result is Result.DONE else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
