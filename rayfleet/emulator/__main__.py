"""``python -m rayfleet.emulator --folder FOLDER``: a Google Cloud on loopback until SIGTERM.

Prints the variables that lead a shell to it, for ``eval``.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path

from rayfleet.emulator.account import environment, write_account
from rayfleet.emulator.clock import EmulatedClock
from rayfleet.emulator.cloud import Cloud
from rayfleet.emulator.server import Server


def main(arguments: list[str]) -> None:
    """Serve until a signal comes."""
    options = _options(arguments)
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    clock = EmulatedClock(speed=options.speed)
    with Server(Cloud.open(options.project, options.folder, clock), options.port) as server:
        account = options.folder / "account.json"
        write_account(account, server.url, options.project)
        for name, value in environment(server.url, options.project, account).items():
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
        sys.stdout.flush()
        signal.sigwait(signals)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rayfleet.emulator", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="keeps the state")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--project", default="rayfleet-rehearsal")
    parser.add_argument(
        "--speed", type=float, default=1.0, help="seconds of the cloud per second (default: 1)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
