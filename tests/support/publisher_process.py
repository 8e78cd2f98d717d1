"""A publisher in a process of its own, that can be killed, starved of disk or run twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfleet.image.oci.http import Retries
from tests.support.faults import Fault, Request, Stall
from tests.support.faulty_regions import QUICK, TAGS, FaultyRegions
from tests.support.processes import with_default_signals

SECONDS = 120
# The plan, passwords included, comes on stdin.
SCRIPT = """
import json, resource, sys
from pathlib import Path
from rayfleet.console import Console
from rayfleet.errors import RayfleetError
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.publish.standalone import publish_image
from rayfleet.image.oci.http import Retries

plan = json.load(sys.stdin)
if plan["largest_file"] is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (plan["largest_file"],) * 2)
try:
    published = publish_image(
        plan["image"], plan["destinations"], plan["tags"],
        state=Path(plan["state"]), retries=Retries(**plan["retries"]), console=Console(),
        login=lambda host: Credentials(**plan["logins"][host]),
    )
    published.require(next_step="run it again")
except RayfleetError as error:
    print(error.text(), file=sys.stderr)
    sys.exit(error.exit_code)
print(published.digest)
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a publisher ended."""

    code: int
    out: str
    err: str


@contextmanager
def publisher(
    regions: FaultyRegions,
    *,
    image: str = "",
    repository: str = "",
    state: Path | None = None,
    largest_file: int | None = None,
    retries: Retries = QUICK,
) -> Iterator[subprocess.Popen[str]]:
    """A running publisher, killed with the block. ``largest_file`` limits what it may write."""

    plan = _plan(regions, image=image, repository=repository, state=state)
    plan |= {
        "largest_file": largest_file,
        "retries": {name: getattr(retries, name) for name in retries.__slots__},
    }
    with subprocess.Popen(
        with_default_signals(sys.executable, "-c", SCRIPT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            with process.stdin as plan_reader:
                json.dump(plan, plan_reader)
            process.stdin = None
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> Ended:
    """Wait for a publisher."""
    out, err = process.communicate(timeout=SECONDS)
    return Ended(code=process.returncode, out=out.strip(), err=err)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a publisher, unless it has just ended right."""
    process.kill()
    ended = finish(process)
    assert ended.code in {0, -signal.SIGKILL}, ended


@dataclass
class KillAt:
    """Kills ``process`` when the ``number``-th request arrives, which then stays unanswered."""

    number: int
    process: subprocess.Popen[str] | None = None
    seen: int = 0

    def __call__(self, request: Request) -> Fault | None:
        self.seen += 1
        if self.seen < self.number or self.process is None:
            return None
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        return Stall()


def _plan(
    regions: FaultyRegions, *, image: str, repository: str, state: Path | None
) -> dict[str, Any]:
    logins = {proxy.host: regions.login(proxy.host) for proxy in regions.proxies.values()}
    return {
        "image": image or regions.image,
        "destinations": {
            region: f"{proxy.host}/{repository or regions.repository}"
            for region, proxy in regions.proxies.items()
        },
        "tags": TAGS,
        "state": str(state or regions.state),
        "logins": {
            host: {"username": each.username, "password": each.password}
            for host, each in logins.items()
        },
    }
