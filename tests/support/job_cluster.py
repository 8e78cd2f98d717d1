"""A real Ray head that is reached over a real sshd, for tests of what reads and restores jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.cluster.head import Head
from rayfleet.job.client import JobClient
from tests.support.ray_head import LocalRayHead
from tests.support.sshd import LocalSshd


@dataclass(kw_only=True)
class JobCluster:
    """One cluster of one node. ``folder`` is for sshd; ``token`` turns Ray's authentication on.

    ``settings`` are more of the head's environment.
    """

    folder: Path
    name: str = "us-east5"
    token: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    ray: LocalRayHead = field(init=False)
    sshd: LocalSshd = field(init=False)

    def __post_init__(self) -> None:
        """Make both parts, nothing runs yet."""
        self.ray = LocalRayHead(token=self.token, settings=self.settings)
        self.sshd = LocalSshd(folder=self.folder)

    @property
    def port(self) -> int:
        """The dashboard's port."""
        return self.ray.port

    def start(self) -> None:
        """Start both and wait until they answer."""
        self.sshd.start()
        self.ray.start()

    def stop(self) -> None:
        """End everything that runs and remove Ray's files."""
        self.ray.stop()
        self.sshd.stop()

    def open_head(self) -> Head:
        """A connection to the head, for a with statement."""
        return Head.open(self.sshd.address(self.name))

    def jobs(self) -> JobClient:
        """A client of its jobs, without SSH."""
        return self.ray.jobs()

    def lose_head(self) -> None:
        """Kill every process of the head, as the loss of its machine does: jobs end with it."""
        self.ray.kill()

    def replace_head(self) -> None:
        """Lose the head and start a new one at the same ports, which knows no jobs."""
        self.lose_head()
        self.ray.start()
