"""Write the table of tasks in README.md from the tasks themselves.

    .venv/bin/python scripts/readme_tasks.py [--check]

--check changes nothing and exits with 1 when the table is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from invoke.collection import Collection
from invoke.parser.argument import Argument
from invoke.tasks import Task

from rayfleet.tasks import ns
from rayfleet.tasks.words import Word, Words

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- tasks: begin -->", "<!-- tasks: end -->"


def main() -> int:
    """Renew the table, or say that it is stale."""
    current = README.read_text()
    renewed = with_table(current, table(ns))
    if current == renewed:
        return 0
    if "--check" in sys.argv[1:]:
        print("the table of tasks in README.md is stale; run: make readme", file=sys.stderr)
        return 1
    README.write_text(renewed)
    return 0


def table(collection: Collection) -> str:
    """A Markdown table of all tasks: the plain ones first, then each sub-collection's."""
    rows = [f"| `{name}` | {summary(task)} | {options(task)} |" for name, task in tasks(collection)]
    return "\n".join(["| Task | What it does | Options |", "|---|---|---|", *rows])


def tasks(collection: Collection) -> Iterator[tuple[str, Task[object]]]:
    """Every task with the name that one types, in the order of `invoke --list`."""
    names = sorted(collection.task_names, key=lambda name: ("." in name, name))
    return ((name, collection[name]) for name in names)


def summary(task: Task[object]) -> str:
    """The first line of a task's docstring."""
    return (task.__doc__ or "").strip().splitlines()[0].removesuffix(".")


def options(task: Task[object]) -> str:
    """The arguments of a task as one types them: `--flag`, or `WORD` for a positional one."""
    return " ".join(f"`{_typed(argument)}`" for argument in task.get_arguments())


def _typed(argument: Argument) -> str:
    name = str(argument.name)
    if isinstance(argument, Word):
        return name.upper() + ("…" if isinstance(argument, Words) else "")
    return "--" + name.replace("_", "-")


def with_table(text: str, rendered: str) -> str:
    """``text`` with ``rendered`` between the markers, which must both be there."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"README.md lacks the markers {BEGIN} and {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{rendered}\n{END}", text)


if __name__ == "__main__":
    sys.exit(main())
