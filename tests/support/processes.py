"""Whether processes of this machine run."""

from __future__ import annotations

from pathlib import Path


def runs(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        # The name before the state may hold anything, parentheses too.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        # Between opening and reading it, a process that ends is "no such process", not "no file".
        return False
    return state != "Z"
