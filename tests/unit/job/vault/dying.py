"""Work on a vault that is killed before its first step on the disk, its second, and so on.

``python -m tests.unit.job.vault.dying FOLDER WORK`` makes a vault FOLDER/N for each step N, and
prints how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.store import Vault
from tests.unit.job.vault.examples import OTHER, TAKEN, URI, job, save

HOUR = timedelta(hours=1)
ENV = {"working_dir": URI, "py_modules": [OTHER]}
# What changes the disk; each is announced before it happens.
STEPS = {"os.chmod", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}


def save_old(vault: Vault) -> Backup:
    """What is in the vault when the work begins: a package is needed by it alone."""
    contents = {URI: b"shared", OTHER: b"old"}
    return save(vault, job(runtime_env=ENV), contents=contents, taken=TAKEN - HOUR)


def save_new(vault: Vault) -> Backup:
    """What is added; a package of it is there already."""
    return save(vault, job(runtime_env=ENV), contents={URI: b"shared", OTHER: b"new"})


def prune_old(vault: Vault) -> None:
    """Delete what save_old has put there."""
    vault.prune(HOUR / 2, now=TAKEN)


WORKS: Mapping[str, tuple[Callable[[Vault], object], ...]] = {
    "first": (save_new,),
    "save": (save_old, save_new),
    "prune": (save_old, save_new, prune_old),
}


def _die_before(step: int) -> None:
    passed = count()

    def hook(event: str, given: Sequence[Any]) -> None:
        writes = event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in STEPS or writes) and next(passed) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _run(vault: Vault, step: int, work: str) -> bool:
    """True when the work was killed on its way."""
    *preparations, last = WORKS[work]
    for prepare in preparations:
        prepare(vault)
    child = os.fork()
    if child == 0:
        _die_before(step)
        last(vault)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in {0, signal.SIGKILL}, status
    return status != 0


def main(folder: Path, work: str) -> None:
    """Kill ``work`` at each of its steps, until it gets through."""
    killed = next(step for step in count() if not _run(Vault(folder / str(step)), step, work))
    sys.stdout.write(f"{killed}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
