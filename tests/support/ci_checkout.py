"""What CI's scripts run in: a clone whose remote is a bare repository, and a stand-in for gh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.workflows import ROOT

# It writes down what it was asked, and that it had its token; a pull request stays open.
GH = """\
#!/usr/bin/env python3
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
assert os.environ["GH_TOKEN"]
with (folder / "gh.jsonl").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
open_one = folder / "open"
if sys.argv[1:3] == ["pr", "create"]:
    open_one.touch()
if sys.argv[1:3] == ["pr", "list"] and open_one.exists():
    print(1)
"""
AUTHOR = ("-c", "user.name=tester", "-c", "user.email=tester@example.test")
TOKEN = "gh-token-of-the-test"
TIMEOUT = 300.0


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A clone of this repository's HEAD in ``folder``/name, as a job of CI gets one."""

    folder: Path
    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def git(self, *words: str) -> str:
        """What git says in it."""
        return _git(self.path, *words)

    def commit(self, message: str, *paths: str) -> None:
        """Commit ``paths`` and push them to main, as somebody had before."""
        self.git("add", *paths)
        self.git(*AUTHOR, "commit", "--quiet", "--message", message)
        self.git("push", "--quiet", "origin", "HEAD:main")

    def run(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a step of a workflow in it."""
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("INVOKE_", "GITHUB_"))
        }
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=kept | {"PATH": path, "GH_TOKEN": TOKEN} | self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )

    def again(self, name: str) -> Checkout:
        """Another clone of the same remote, as the next job gets one."""
        path = self.folder / name
        _git(self.folder, "clone", "--quiet", "--branch", "main", "remote.git", name)
        return Checkout(folder=self.folder, path=path, environment=self.environment)

    def asked_of_gh(self) -> list[list[str]]:
        """The arguments of every call of gh."""
        log = self.folder / "bin" / "gh.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def merge(self, branch: str) -> None:
        """Do what the button of a pull request does."""
        self.git("fetch", "--quiet", "origin", branch)
        self.git("push", "--quiet", "origin", "FETCH_HEAD:main")

    def stand_in(self, name: str, script: str) -> None:
        """Put a program before the real one of that name."""
        path = self.folder / "bin" / name
        path.write_text(script)
        path.chmod(0o755)


def make_checkout(folder: Path, environment: dict[str, str]) -> Checkout:
    """Clone HEAD of this repository into ``folder``; its remote is there, too."""
    _git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", "remote.git")
    # This repository may itself be the shallow clone of a job of CI.
    _git(folder / "remote.git", "config", "receive.shallowUpdate", "true")
    _git(ROOT, "push", "--quiet", str(folder / "remote.git"), "HEAD:refs/heads/main")
    (folder / "bin").mkdir()
    seed = Checkout(folder=folder, path=folder, environment=environment)
    seed.stand_in("gh", GH)
    return seed.again("first")


def _git(folder: Path, *words: str) -> str:
    ran: subprocess.CompletedProcess[str] = subprocess.run(
        _words(words), cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def _words(words: Sequence[str]) -> list[str]:
    return ["git", *words]
