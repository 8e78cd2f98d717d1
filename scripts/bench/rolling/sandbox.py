"""A sandbox of the benchmark's own: three clusters of one shape in three regions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from preserving.methods import Stopwatch

from rayfleet.cluster.launcher import launch_environment
from rayfleet.process import must_run
from rayfleet.sandbox.engine import Engine, Row, engine_url
from rayfleet.sandbox.place import Place

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(sys.executable).parent
BY_HAND = "us-central2"
OURS = "us-east5"
ALL = ("us-central2", "europe-west4", "us-east5")
COMMAND_SECONDS = 900.0
INSTALL_SECONDS = 1800.0
# The shipped fleet's order has some clusters go alone, whatever is asked for.
ORDER = re.compile(r"^  order: .*\n", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """``folder`` has the fleet file, the state folder and the logs of all commands."""

    folder: Path

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / "state"

    @property
    def place(self) -> Place:
        """Where the sandbox is."""
        return Place(self.state / "sandbox")

    def rows(self) -> tuple[Row, ...]:
        """The containers."""
        return Engine(url=engine_url(), sandbox=self.place.id).rows()

    def config(self, cluster: str) -> Path:
        """The generated config of ``cluster``."""
        return self.place.folder / "clusters" / f"{cluster}.yaml"

    def head(self, cluster: str) -> str:
        """The container that is the head of ``cluster`` now."""
        (name,) = [
            row.name
            for row in self.rows()
            if (row.cluster, row.role, row.state) == (cluster, "head", "running")
        ]
        return name

    def up(self) -> None:
        """Start everything: registries, the image in them, the three clusters."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shipped = (ROOT / "infra" / "sandbox.yaml").read_text()
        self._fleet.write_text(ORDER.sub("", shipped))
        must_run(
            [sys.executable, "-m", "rayfleet.sandbox.engine_install"],
            timeout=INSTALL_SECONDS,
            what="the start of a Docker engine",
        )
        self.invoke("sandbox.up")
        self.invoke("cluster-docker", "--allow-dirty")
        self.invoke("update-configs")
        self.start(*ALL)

    def start(self, *clusters: str) -> None:
        """Start ``clusters`` with rayfleet."""
        self.invoke("start", *_named(clusters), "--parallel", str(len(clusters)))

    def restart(self, *clusters: str, watch: Stopwatch, options: tuple[str, ...] = ()) -> None:
        """`invoke restart` of ``clusters``, measured. While a wave bakes nothing is done but to
        wait, so they do not bake."""
        with watch.running():
            self.invoke("restart", *_named(clusters), "--yes", "--bake", "0s", *options)

    def by_hand(self, *clusters: str, watch: Stopwatch) -> None:
        """`ray down -y CONFIG && ray up -y CONFIG` of each cluster, side by side, measured."""

        def one(cluster: str) -> None:
            for verb in ("down", "up"):
                command = [str(PROGRAMS / "ray"), verb, "-y", str(self.config(cluster))]
                self._run(command, private=f"tmp-{cluster}")

        with watch.running(), ThreadPoolExecutor(len(clusters)) as pool:
            list(pool.map(one, clusters))

    def take_over(self, cluster: str) -> None:
        """Put a cluster that was started by hand back into rayfleet's hands."""
        self.invoke("stop", "--cluster", cluster, "--yes")
        self.start(cluster)

    def down(self) -> None:
        """Remove all of it."""
        if self.place.folder.exists():
            self.invoke("sandbox.down")

    def invoke(self, *argv: str) -> None:
        """Run a task to its end.

        Raises:
            SystemExit: it failed.
        """
        self._run([str(PROGRAMS / "invoke"), *argv])

    @property
    def _fleet(self) -> Path:
        return self.folder / "fleet.yaml"

    def _run(self, argv: list[str], private: str = "tmp") -> None:
        (self.folder / private).mkdir(exist_ok=True)
        ours = {key: value for key, value in os.environ.items() if not key.startswith("INVOKE_")}
        env = launch_environment(ours, self.folder / private) | {
            "INVOKE_FLEET": str(self._fleet),
            "INVOKE_STATE": str(self.state),
        }
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def _named(clusters: tuple[str, ...]) -> list[str]:
    return [word for name in clusters for word in ("--cluster", name)]
