"""The host keys of the machines that Ray's launcher connects to, while it runs.

Ray trusts any key. So it finds our ``ssh`` first (:mod:`rayfleet.cluster.launch_ssh`), which asks
here at each connection: a head that Ray makes has no key before. The keys come from the machine's
own record, over the cloud's channel; where there is none, from the operator's known_hosts.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rayfleet.cluster import launch_ssh
from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.known_hosts import lookup, record_host_key
from rayfleet.cluster.nodes import Nodes
from rayfleet.errors import RayfleetError, Unreachable

KEY_SECONDS = 300.0
"""How long a machine may take to boot and record its host keys, from the first attempt on."""

# The path of a Unix socket has 107 bytes at most, and ssh adds to that of its own.
TEMPORARY = "/tmp"  # noqa: S108 (the name below it is made by mkdtemp)
_OFFERED = re.compile(r"SHA256:[\w+/]+")


@dataclass(frozen=True, slots=True)
class Known:
    """Keys of a machine: the file that has them under ``alias``, and whose ``record`` they are."""

    path: Path
    alias: str
    record: str = ""


class LaunchKeys:
    """Answers our ssh for as long as the block lasts.

    ``folder`` is to be first in Ray's PATH. A machine that has another key than the one in its
    record, or none in time, is in ``refusal``; :attr:`stop` is called then.
    """

    def __init__(self, config: LaunchConfig) -> None:
        self.refusal: RayfleetError | None = None
        self.stop: Callable[[], None] = lambda: None
        self._config = config
        self._name = config.path.stem
        self._nodes = Nodes(config)
        self._lock = threading.Lock()
        self._known: dict[str, Known] = {}
        self._since: dict[str, float] = {}

    def __enter__(self) -> LaunchKeys:
        self.folder = Path(tempfile.mkdtemp(prefix="rf-", dir=TEMPORARY))
        words = [sys.executable, "-I", "-S", launch_ssh.__file__, shutil.which("ssh") or "ssh"]
        program = self.folder / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([*words, str(self.folder)])} "$@"\n')
        program.chmod(0o700)
        keys = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                answer = keys._answer(json.loads(self.rfile.readline()))
                self.wfile.write(json.dumps(answer).encode() + b"\n")

        self._server = _Server(str(self.folder / launch_ssh.SOCKET), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answer(self, asked: dict[str, str]) -> dict[str, str]:
        host = asked["host"]
        with self._lock:
            try:
                if "refused" in asked:
                    self._judge(host, asked["refused"])
                    return {}
                known = self._known[host] = self._known.get(host) or self._look(host)
                return {"known_hosts": str(known.path), "alias": known.alias}
            except RayfleetError as error:
                waited = time.monotonic() - self._since.setdefault(host, time.monotonic())
                if waited > KEY_SECONDS:
                    self._refuse(error)
                return {"why": f"{error.what}: {error.why}" if error.why else error.what}

    def _look(self, host: str) -> Known:
        """The keys of the machine at ``host``.

        Raises:
            Unreachable: nobody knows any yet, or the cloud does not answer.
        """
        record = self._record(host)
        alias = self._config.identity
        if record:
            path = self.folder / f"known_hosts.{len(self._known)}"
            record_host_key(path, alias, record)
            return Known(path, alias, record)
        users = Path.home() / ".ssh" / "known_hosts"
        for name in (alias, host):
            if lookup(users, name):
                return Known(users, name)
        raise Unreachable(
            f"{self._name}: the host key of {host} is not known",
            why="its cloud has no record of it that we may read, nor has ~/.ssh/known_hosts",
            next_step="let machines record their host keys (README, Into the heads), then run: "
            f"invoke restart --cluster {self._name}",
        )

    def _record(self, host: str) -> str:
        head = self._nodes.head()
        # Workers are entered by `ray down` only.
        for node in (*([head] if head else []), *self._nodes.running_workers()):
            # Ray's ssh_proxy_use_node_id takes the id for an address.
            if host in {node, self._nodes.address(node)}:
                return self._nodes.host_key(node)
        return ""

    def _judge(self, host: str, said: str) -> None:
        """ssh did not take the key of ``host``: wrong, unless its record is a new one."""
        known = self._known.pop(host)
        record = self._record(host)
        if record and record != known.record:
            return  # Ray tries again, and then we look again
        offered = _OFFERED.search(said)
        have = ", ".join(f"{key.kind} {key.fingerprint}" for key in lookup(known.path, known.alias))
        self._refuse(
            Unreachable(
                f"{self._name}: the host key of {host} has changed",
                why=f"it offers {offered[0] if offered else 'another'}, known is {have}; another "
                "machine answers, or this one made new keys after it had recorded the first",
                next_step=f"find out which, then run: invoke restart --cluster {self._name}",
            )
        )

    def _refuse(self, error: RayfleetError) -> None:
        self.refusal = self.refusal or error
        # It waits for the end of Ray, and our ssh, a child of Ray's, for us.
        threading.Thread(target=self.stop, daemon=True).start()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is not worth a traceback."""
