"""What a cluster was started with, for every later operator: on its head, and in our state folder.

``~/.rayfleet/started.json`` on the head names the config's hash, the image and the rollout;
``started.yaml`` beside it is the config itself, which a way back needs.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig
from rayfleet.errors import Unreachable
from rayfleet.files import ensure_private_folder, write_atomically
from rayfleet.fleet.model import Cluster, Fleet

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head
    from rayfleet.project import Project

FOLDER = "~/.rayfleet"
RECORD = f"{FOLDER}/started.json"
CONFIG = f"{FOLDER}/started.yaml"
ASK_TIMEOUT = 20.0  # seconds per question to a head


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a head was started with: the SHA-256 of the config in hex, the full reference of the
    image, and the id of the rollout (empty: none). ``node`` is the head's, in our own copy."""

    config: str = ""
    image: str = ""
    rollout: str = ""
    node: str = ""


def record_start(
    head: Head, config: LaunchConfig, *, state: Path, node: str, rollout: str = ""
) -> None:
    """Leave on ``head``, whose node id is ``node``, and in the folder ``state`` what the cluster
    was started with.

    Raises:
        Unreachable: the head did not take it.
        PrerequisiteMissing: the state folder cannot be written.
    """
    raw = config.path.read_bytes()
    record = {"config": config.hash, "image": config.image, "rollout": rollout}
    # The config first: a record names only what is there.
    parts = ((CONFIG, raw), (RECORD, json.dumps(record).encode()))
    commands = [f"mkdir -p {FOLDER}"]
    for path, content in parts:
        encoded = base64.b64encode(content).decode()
        commands.append(f"echo {encoded} | base64 -d > {path}.new && mv {path}.new {path}")
    result = head.run(" && ".join(commands), timeout=ASK_TIMEOUT)
    if result.code != 0:
        raise Unreachable("the start could not be recorded on the head", why=result.stderr[-300:])
    folder = state / "started"
    ensure_private_folder(folder)
    write_atomically(folder / f"{config.identity}.yaml", raw, mode=0o600)
    document = json.dumps(record | {"node": node}) + "\n"
    write_atomically(folder / f"{config.identity}.json", document, mode=0o600)


def read_start(head: Head) -> Started:
    """What ``head`` says that it was started with; empty fields for what is not recorded."""
    result = head.run(f"cat {RECORD}", timeout=ASK_TIMEOUT)
    return _parsed(result.stdout if result.code == 0 else "")


def last_started(state: Path, cluster: Cluster) -> Started:
    """What this machine last started ``cluster`` with; empty fields when it never did."""
    path = state / "started" / f"{cluster.identity}.json"
    try:
        return _parsed(path.read_text(errors="replace"))
    except OSError:
        return Started()


def previous_config(project: Project, fleet: Fleet, cluster: Cluster) -> bytes | None:
    """The config that ``cluster`` was last started with, byte for byte; None when nobody knows.

    The head is asked. What is kept here is taken where that head's record names it, and where
    it was started from here and does not answer, or is gone.
    """
    from rayfleet.cluster.config import read_launch_config
    from rayfleet.cluster.head import Head
    from rayfleet.cluster.nodes import Nodes, address_of

    kept, raw = _kept(project.state, cluster)
    nodes = Nodes(read_launch_config(fleet, cluster))
    node = ""
    try:
        node = nodes.head()
        if not node:
            return raw
        with Head.open(
            address_of(project, fleet, cluster, nodes.config, nodes.address(node))
        ) as head:
            wanted = read_start(head).config
            found = head.run(f"base64 {CONFIG}", timeout=ASK_TIMEOUT)
    except Unreachable:
        return raw if node and kept.node == node else None
    there = base64.b64decode(found.stdout) if found.code == 0 else b""
    candidates = (there, raw or b"") if wanted else ()
    return next((one for one in candidates if hashlib.sha256(one).hexdigest() == wanted), None)


def _kept(state: Path, cluster: Cluster) -> tuple[Started, bytes | None]:
    """What this machine knows, where record and config belong together."""
    started = last_started(state, cluster)
    try:
        raw = (state / "started" / f"{cluster.identity}.yaml").read_bytes()
    except OSError:
        return Started(), None
    if hashlib.sha256(raw).hexdigest() != started.config:
        return Started(), None
    return started, raw


def _parsed(text: str) -> Started:
    try:
        row = json.loads(text)
        return Started(**{name: str(row.get(name, "")) for name in Started.__slots__})
    except (ValueError, AttributeError):
        return Started()
