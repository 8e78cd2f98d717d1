"""CPU time of `invoke --list` in this checkout against `invoke --list` on an empty tasks.py.

    .venv/bin/python scripts/bench/list.py [--runs 15] [--json]

User and system time of the whole process, bytecode compiled before, the two taking turns so that
a busy moment of the machine hits both; the median of each. The target is 20 ms more at most.
With --json the last line is one JSON object: {"ratios": {...}, "figures": {...}}.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INVOKE = Path(sys.executable).with_name("invoke")
TARGET_MS = 20.0


def main() -> None:
    """Measure, print a table, and JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="runs of each (default: 15)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bare = Path(scratch)
        (bare / "tasks.py").write_text("")
        for folder in (ROOT / "rayfleet", ROOT / "tasks.py", bare / "tasks.py"):
            compiled(folder)
        samples = [(cpu_ms(bare), cpu_ms(ROOT)) for _ in range(options.runs)]
    empty, ours = (statistics.median(column) for column in zip(*samples, strict=True))
    verdict = "within" if ours - empty <= TARGET_MS else "OVER"
    print(f"empty tasks.py   {empty:7.1f} ms CPU (median of {options.runs})")
    print(f"this checkout    {ours:7.1f} ms CPU")
    print(f"difference       {ours - empty:7.1f} ms, {verdict} the target of {TARGET_MS:.0f} ms")
    print(f"ratio            {ours / empty:7.2f}")
    if options.json:
        figures = {"empty_ms": empty, "rayfleet_ms": ours, "difference_ms": ours - empty}
        rounded = {name: round(value, 2) for name, value in figures.items()}
        ratios = {"invoke_list_cpu": round(ours / empty, 3)}
        print(json.dumps({"ratios": ratios, "figures": rounded}))


def compiled(path: Path) -> None:
    """Compile what lies at ``path``: Invoke itself never writes bytecode."""
    done = (
        compileall.compile_dir(path, quiet=1)
        if path.is_dir()
        else compileall.compile_file(path, quiet=1)
    )
    if not done:
        sys.exit(f"{path} does not compile")


def cpu_ms(folder: Path) -> float:
    """User and system time, in milliseconds, of `invoke --list` run in ``folder``."""
    with subprocess.Popen(
        [INVOKE, "--list"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    # Invoke exits with 1 on a tasks.py without tasks; it has done the same work by then.
    if process.returncode not in ((0,) if folder == ROOT else (0, 1)):
        sys.exit(f"invoke --list failed in {folder}")
    return (usage.ru_utime + usage.ru_stime) * 1000


if __name__ == "__main__":
    main()
