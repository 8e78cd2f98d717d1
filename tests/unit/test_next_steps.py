"""Every command that a message proposes is one that there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from rayfleet.tasks import ns

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"invoke ([a-z]+(?:[.-][a-z]+)*)((?: (?:--[a-z-]+|[A-Z{\[][^ \"'`),]*))*)")
# What follows "invoke" in prose: words, and collections as in "invoke jobs.*".
PROSE = {"and", "or", "auth", "fleet", "jobs", "registry", "rollouts", "sandbox"}


def test_proposed_commands_exist_with_their_flags() -> None:
    tasks = {name.replace("_", "-"): task for name, task in _tasks().items()}
    wrong = []
    for path in sorted((ROOT / "rayfleet").rglob("*.py")):
        for name, rest in COMMAND.findall(path.read_text()):
            flags = re.findall(r"--([a-z-]+)", rest)
            known = _flags(tasks[name]) if name in tasks else set()
            if name in PROSE or (name in tasks and set(flags) <= known):
                continue
            wrong.append(f"{path.relative_to(ROOT)}: invoke {name} {rest}")
    assert not wrong, "\n".join(wrong)
    assert len(tasks) > 15


def _tasks() -> dict[str, Any]:
    return {name: ns[name] for name in ns.task_names}


def _flags(task: Any) -> set[str]:
    found = set()
    for parameter in inspect.signature(task.body).parameters.values():
        name = parameter.name.replace("_", "-")
        found |= {name, f"no-{name}"} if isinstance(parameter.default, bool) else {name}
    return found
