"""The workflows of .github, as values: jobs, steps, and the commands that they run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.quick_yaml import read_yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
SCRIPT = re.compile(r"scripts/ci/\w+\.sh")


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """One file; ``document`` is what YAML makes of it, ``text`` what it says."""

    name: str
    text: str
    document: dict[str, Any]

    @property
    def triggers(self) -> dict[str, Any]:
        """What starts it. YAML 1.1 takes the word "on" for a boolean."""
        found: dict[Any, Any] = self.document
        return dict(found.get("on", found.get(True)) or {})

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """Its jobs by name."""
        return dict(self.document["jobs"])

    def steps(self, job: str = "") -> Iterator[dict[str, Any]]:
        """The steps of one job, or of all."""
        for name, entry in self.jobs.items():
            if job in {"", name}:
                yield from entry["steps"]

    def runs(self, job: str = "") -> list[str]:
        """What the steps with ``run:`` run, in order."""
        return [step["run"] for step in self.steps(job) if "run" in step]


def workflows() -> dict[str, Workflow]:
    """All workflows by the name of their file, without its ending."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text()
        found[path.stem] = Workflow(name=path.stem, text=text, document=read_yaml(text))
    return found


def scripts_of(runs: list[str]) -> list[Path]:
    """The scripts of scripts/ci that these commands run, in order."""
    return [ROOT / name for run in runs for name in SCRIPT.findall(run)]


def invocations(script: str) -> Iterator[list[str]]:
    """The words behind ``invoke`` in every line of a shell script that runs it."""
    for line in script.replace("\\\n", " ").splitlines():
        found = re.match(r"\s*(?:if |! )*invoke (?P<rest>[^#|;&>]*)", line)
        if found:
            yield shlex.split(found["rest"])
