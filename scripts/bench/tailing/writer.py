"""Append lines to files at a steady pace, each with the time of its write. A program of its own:

writer.py SECONDS LINES_PER_SECOND FILE...

The files take turns, as heads do not write in step.
"""

from __future__ import annotations

import os
import sys
import time

NANO = 1_000_000_000


def main() -> None:
    """Write, and end."""
    print("writing", flush=True)
    seconds, per_second, *paths = sys.argv[1:]
    files = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in paths]
    total = int(float(seconds) * int(per_second)) * len(files)
    pace = NANO // (int(per_second) * len(files))
    begin = time.monotonic_ns()
    for number in range(total):
        wait = begin + number * pace - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / NANO)
        header = "2026-11-21 20:00:00,000\tINFO autoscaler.py:589 -- line"
        line = f"{header} {number} at {time.monotonic_ns()}\n"
        os.write(files[number % len(files)], line.encode())


if __name__ == "__main__":
    main()
