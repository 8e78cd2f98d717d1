"""Watch the command lines of every process on this machine, containers included."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

INTERVAL = 0.25
# Ray 2.60 itself starts a worker with the variables of its job in argv, for some milliseconds.
RAYS_OWN = b"ray/_private/workers/setup_worker.py"


class ArgvWatch:
    """While its block runs, ``found`` collects the command lines that hold ``secret``.

    ``looks`` counts how often they were read. Those of Ray's own workers are left out.
    """

    def __init__(self, secret: str) -> None:
        self.found: list[str] = []
        self.looks = 0
        self._secret = secret.encode()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ArgvWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._look()
            if self._stop.wait(INTERVAL):
                return

    def _look(self) -> None:
        self.looks += 1
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    line = (entry / "cmdline").read_bytes()
                    if self._secret in line and RAYS_OWN not in line:
                        self.found.append(line.replace(b"\0", b" ").decode(errors="replace"))
