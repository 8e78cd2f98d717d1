"""``ray up`` and ``ray down``: the only module that runs Ray's cluster launcher."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.launch_keys import LaunchKeys
from rayfleet.errors import ToolFailed
from rayfleet.files import ensure_folder
from rayfleet.process import Finished, Program, run
from rayfleet.project import Project

# Ray waits up to 900 s for a head's SSH (AUTOSCALER_NODE_START_WAIT_S) before setup begins.
UP_TIMEOUT = 1800.0
DOWN_TIMEOUT = 900.0
CAUSE_LINES = 8
# A line of `--log-style record`; all others are printed by the commands that Ray runs.
RECORD = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+\s+(?P<level>[A-Z]+) \S+ -- (?P<text>.*)")
FAILURES = ("ERR", "VERR", "VVERR", "PANIC")
OF_SSH = ("Shared connection to ", "Connection to ", "Warning: Permanently added ")
# These would send our calls to whatever cluster the operator has in mind.
REDIRECTS = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RAY_JOB_HEADERS")


@dataclass(slots=True)
class Cause:
    """Why Ray's launcher failed, from what it prints: the output of the last command that it ran
    on the head, and what it says at the end. Between the two it prints tracebacks of its own."""

    _said: deque[str] = field(default_factory=lambda: deque(maxlen=CAUSE_LINES))
    _concluded: str = ""

    def hear(self, line: str) -> None:
        """Take in the next line."""
        record = RECORD.match(line)
        if record is None:
            if not self._concluded and not line.startswith(OF_SSH):
                self._said.append(line.strip())
        elif record["level"] in FAILURES:
            self._concluded = record["text"]
        elif record["text"].startswith("Running `"):
            self._said.clear()

    def lines(self) -> list[str]:
        """A few lines; none when Ray has named no failure."""
        return [*self._said, self._concluded] if self._concluded else []


@dataclass(frozen=True, slots=True)
class Launcher:
    """Ray's launcher for the clusters of one project."""

    project: Project

    def up(self, config: LaunchConfig, on_line: Callable[[str], None]) -> None:
        """Create the cluster, or update and restart Ray on the head that is there.

        Raises:
            ToolFailed: Ray could not; the message has its last lines and names the whole log.
            Unreachable: the head's host key is not the one of its own record, or has none.
        """
        self._must(config, "up", UP_TIMEOUT, on_line)

    def down(self, config: LaunchConfig, on_line: Callable[[str], None]) -> None:
        """Let Ray end what it knows of the cluster."""
        self._must(config, "down", DOWN_TIMEOUT, on_line)

    def log(self, config: LaunchConfig, verb: str) -> Path:
        """Where the whole output of the last ``ray up`` or ``ray down`` is."""
        return self.project.logs(f"{config.identity}-ray-{verb}")

    def _must(
        self, config: LaunchConfig, verb: str, timeout: float, on_line: Callable[[str], None]
    ) -> None:
        cause = Cause()

        def hear(line: str) -> None:
            cause.hear(line)
            on_line(line)

        finished = self._ray(config, verb, timeout, hear)
        if finished.ok:
            return
        name = config.path.stem
        raise ToolFailed(
            f"{name}: ray {verb} failed (exit {finished.code})",
            why="\n  ".join(cause.lines() or ["last lines:", *finished.tail[-6:]]),
            next_step=f"read {self.project.shown(self._keep_log(config, verb))},"
            f" then run: invoke restart --cluster {name}",
        )

    def _keep_log(self, config: LaunchConfig, verb: str) -> Path:
        """Put the log where the next run, a way back for one, does not replace it."""
        kept = self.project.logs(f"{config.identity}-ray-{verb}-failed")
        try:
            return self.log(config, verb).replace(kept)
        except OSError:
            return self.log(config, verb)

    def _ray(
        self, config: LaunchConfig, verb: str, timeout: float, on_line: Callable[[str], None]
    ) -> Finished:
        # Ray keeps what it resolved of a config in TMPDIR, readable to all, and believes it
        # for ever; `ray down` cannot be told not to. A new private folder forgets it.
        private = self.project.state / "tmp" / f"ray-{config.identity}"
        shutil.rmtree(private, ignore_errors=True)
        ensure_folder(private, mode=0o700)
        log = self.log(config, verb)
        log.unlink(missing_ok=True)
        program = Path(sys.executable).with_name("ray")
        argv = [str(program), verb, "-y", "--log-style", "record", "--log-color", "false"]
        argv += ["--no-config-cache", "--disable-usage-stats"] if verb == "up" else []
        try:
            with LaunchKeys(config) as keys:

                def started(program: Program) -> None:
                    # What `ray down` cannot enter, it terminates all the same.
                    if verb == "up":
                        keys.stop = program.stop

                finished = run(
                    [*argv, str(config.path)],
                    timeout=timeout,
                    env=launch_environment(os.environ, private, keys.folder),
                    cwd=self.project.root,
                    log=log,
                    on_line=on_line,
                    started=started,
                )
            if keys.refusal is not None and not finished.ok:
                raise keys.refusal
            return finished
        finally:
            shutil.rmtree(private, ignore_errors=True)


def launch_environment(
    environment: Mapping[str, str], private: Path, programs: Path
) -> dict[str, str]:
    """The operator's environment as Ray's launcher may see it; ``programs`` is first in PATH."""
    kept = {key: value for key, value in environment.items() if key not in REDIRECTS}
    return kept | {
        "PATH": os.pathsep.join([str(programs), environment.get("PATH", os.defpath)]),
        "TMPDIR": str(private),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Said out loud, or Ray prints a notice about its default each time.
        "RAY_UP_enable_autoscaler_v2": "1",
        "PYTHONUNBUFFERED": "1",
    }
