"""What exists in the emulated cloud, in memory and in a file that outlives it.

A row has the resource as the API shows it (``view``) and what will become of it without anybody
asking (``steps``: pairs of a time and a state, the earliest first).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
GONE = "gone"
"""The state of a step after which the resource does not exist."""

# Where a table keeps the state of its rows.
FIELD = {"instances": "status", "nodes": "state"}


@dataclass
class State:
    """All rows, by table and name. ``path`` is the file; without one nothing is kept."""

    path: Path | None = None
    tables: dict[str, dict[str, Row]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    _saved: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: Path | None) -> State:
        """The state that an emulator left in ``path``; an empty one without."""
        state = cls(path=path)
        if path is not None and path.is_file():
            kept = json.loads(path.read_text())
            state.tables, state.counters = kept["tables"], kept["counters"]
        return state

    def save(self) -> None:
        """Keep it, if it changed, for a process that comes after a kill; a loss of power may take
        it. Only the owner may read it: secrets are in it."""
        if self.path is None:
            return
        text = json.dumps({"tables": self.tables, "counters": self.counters})
        if text == self._saved:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        new.replace(self.path)
        self._saved = text

    def table(self, name: str) -> dict[str, Row]:
        """The rows of one kind, by their full names."""
        return self.tables.setdefault(name, {})

    def next(self, counter: str) -> int:
        """1, 2, 3 and so on."""
        self.counters[counter] = self.counters.get(counter, 0) + 1
        return self.counters[counter]

    def settle(self, now: float) -> Iterator[tuple[str, str, Row]]:
        """Take the steps that are due by ``now``; tells of each row that took one."""
        for table, key in FIELD.items():
            for name, row in list(self.table(table).items()):
                due = [step for step in row["steps"] if step[0] <= now]
                if not due:
                    continue
                row["steps"] = row["steps"][len(due) :]
                if due[-1][1] == GONE:
                    del self.table(table)[name]
                else:
                    row["view"][key] = due[-1][1]
                yield table, name, row
