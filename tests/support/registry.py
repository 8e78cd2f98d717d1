"""A real registry (Debian's docker-registry) as a child process, for tests."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.waiting import wait_until

PROGRAM = "docker-registry"
START_SECONDS = 20.0
STOP_SECONDS = 10.0
# It lives for one test: a fifth of what it does would be collecting garbage.
LITTLE_COLLECTING = {"GOGC": "off", "GOMEMLIMIT": "128MiB"}


@dataclass(kw_only=True)
class LocalRegistry:
    """One registry on 127.0.0.1 with basic auth, deletion enabled and a store of its own.

    The first start takes a free port, which later starts keep, so that a test can let a
    registry die and come back.
    """

    folder: Path
    username: str = "tester"
    password: str = field(default_factory=lambda: secrets.token_urlsafe(18), repr=False)
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What the registry printed since its last start."""
        return self.folder / "registry.log"

    def start(self) -> None:
        """Start it and return once it listens."""
        program = shutil.which(PROGRAM)
        if program is None:
            raise AssertionError(
                f"{PROGRAM} is not installed; run: "
                f"apt-get install -y --no-install-recommends {PROGRAM}"
            )
        self._write_config()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, "serve", str(self.folder / "config.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | LITTLE_COLLECTING,
            )
        self.port = wait_until(
            self._listening_port,
            what=f"a registry in {self.folder}",
            timeout=START_SECONDS,
            interval=0.02,
            reason=self._last_words,
        )

    def stop(self) -> None:
        """End it; its store stays. Stopping twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _listening_port(self) -> int | None:
        if self._process is None or self._process.poll() is not None:
            raise AssertionError(f"{PROGRAM} ended at once:\n{self._last_words()}")
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)", self._last_words())
        return int(found.group(1)) if found else None

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")

    def _write_config(self) -> None:
        import bcrypt

        self.folder.mkdir(parents=True, exist_ok=True)
        # The least that bcrypt allows: the registry checks the password on every request.
        hashed = bcrypt.hashpw(self.password.encode(), bcrypt.gensalt(rounds=4))
        (self.folder / "htpasswd").write_text(f"{self.username}:{hashed.decode()}\n")
        config = {
            "version": "0.1",
            "log": {"accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(self.folder / "store")},
                "delete": {"enabled": True},
            },
            "auth": {"htpasswd": {"realm": "test", "path": str(self.folder / "htpasswd")}},
            "http": {"addr": f"127.0.0.1:{self.port}", "secret": secrets.token_hex(16)},
        }
        # JSON is YAML.
        (self.folder / "config.json").write_text(json.dumps(config))
