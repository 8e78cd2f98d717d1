"""``ray up`` and ``ray down``: the only module that runs Ray's cluster launcher."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rayfleet.cluster.config import LaunchConfig
from rayfleet.errors import ToolFailed
from rayfleet.files import ensure_folder
from rayfleet.process import Finished, run
from rayfleet.project import Project

# Ray waits up to 900 s for a head's SSH (AUTOSCALER_NODE_START_WAIT_S) before setup begins.
UP_TIMEOUT = 1800.0
DOWN_TIMEOUT = 900.0
# These would send our calls to whatever cluster the operator has in mind.
REDIRECTS = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RAY_JOB_HEADERS")


@dataclass(frozen=True, slots=True)
class Launcher:
    """Ray's launcher for the clusters of one project."""

    project: Project

    def up(self, config: LaunchConfig, on_line: Callable[[str], None]) -> None:
        """Create the cluster, or update and restart Ray on the head that is there.

        Raises:
            ToolFailed: Ray could not; the message has its last lines and names the whole log.
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
        finished = self._ray(config, verb, timeout, on_line)
        if finished.ok:
            return
        name = config.path.stem
        raise ToolFailed(
            f"{name}: ray {verb} failed (exit {finished.code})",
            why="\n  ".join(["last lines:", *finished.tail[-6:]]),
            next_step=f"read {self.project.shown(self.log(config, verb))},"
            f" then run: invoke restart --cluster {name}",
        )

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
            return run(
                [*argv, str(config.path)],
                timeout=timeout,
                env=launch_environment(os.environ, private),
                cwd=self.project.root,
                log=log,
                on_line=on_line,
            )
        finally:
            shutil.rmtree(private, ignore_errors=True)


def launch_environment(environment: Mapping[str, str], private: Path) -> dict[str, str]:
    """The operator's environment as Ray's launcher may see it."""
    kept = {key: value for key, value in environment.items() if key not in REDIRECTS}
    return kept | {
        "TMPDIR": str(private),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Said out loud, or Ray prints a notice about its default each time.
        "RAY_UP_enable_autoscaler_v2": "1",
        "PYTHONUNBUFFERED": "1",
    }
