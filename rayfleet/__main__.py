"""The tasks as a program of their own: ``rayfleet --list``."""

from __future__ import annotations

from invoke.program import Program

from rayfleet import __version__
from rayfleet.tasks import ns

program = Program(name="rayfleet", binary="rayfleet", namespace=ns, version=__version__)

if __name__ == "__main__":
    program.run()
