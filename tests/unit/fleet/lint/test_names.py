"""docs/lint.md has every rule with its levels, and no other."""

from __future__ import annotations

import ast
import re

from tests.unit.fleet.conftest import REPOSITORY

LEVELS = ("error", "warning")


def _in_code() -> dict[str, set[str]]:
    """The levels of each rule, by the calls that make findings and the tables of rules."""
    found: dict[str, set[str]] = {"yaml": {"error"}}
    for path in (REPOSITORY / "rayfleet" / "fleet" / "lint").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            name = node.args[0] if node.args else None
            if node.func.attr in LEVELS and isinstance(name, ast.Constant):
                found.setdefault(str(name.value), set()).add(node.func.attr)
    # These two modules hand the name of the rule on.
    for module, level in (("docker.py", "error"), ("several.py", "warning")):
        text = (REPOSITORY / "rayfleet" / "fleet" / "lint" / module).read_text()
        for name in re.findall(r'"((?:shm|[a-z]+(?:-[a-z]+)*)-(?:below-[a-z-]+|shared))"', text):
            found.setdefault(name, set()).add(level)
    return found


def test_every_rule_is_in_the_documentation() -> None:
    text = (REPOSITORY / "docs" / "lint.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([a-z, ]+) \|", text, re.MULTILINE)
    assert {name: set(levels.split(", ")) for name, levels in rows} == _in_code()
    assert len(rows) == len(dict(rows))
