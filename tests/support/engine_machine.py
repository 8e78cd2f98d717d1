"""A machine as the production fleet has it: sshd, a Docker engine of its own, Ray's container.

It is itself a container, made of Debian's own packages on the sandbox's base image.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rayfleet.console import Console
from rayfleet.sandbox.base_image import BASE_IMAGE, ensure_base_image
from rayfleet.sandbox.engine_install import ensure_engine
from rayfleet.sandbox.removal import remove_container
from rayfleet.waiting import wait_until

if TYPE_CHECKING:
    from docker.models.containers import Container

    from rayfleet.sandbox.engine import Engine

DOCKERFILE = f"""\
FROM {BASE_IMAGE}
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
        docker.io iptables openssh-server procps python3 \\
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \\
 && mkdir -p /run/sshd ~/.ssh
VOLUME /var/lib/docker
"""
IMAGE = f"rayfleet-tests/engine-machine:{hashlib.sha256(DOCKERFILE.encode()).hexdigest()[:12]}"
LABEL = "rayfleet-tests.engine-machine"
START = """\
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
exec timeout 900 dockerd --bridge=none --iptables=false > /var/log/dockerd.log 2>&1
"""
# Everything but the links and the home is the machine's own, mounted: an image of nothing.
RAY = """\
tar -C / -c bin sbin lib lib64 root | docker import - ray
docker run --detach --init --name "$1" --net=host -v /usr:/usr:ro -v /etc:/etc:ro -v /tmp:/tmp \\
    ray sleep infinity
"""
START_SECONDS = 60.0
SECONDS = 60
_IDLE = ("docker-init", "/sbin/docker-init", "sleep infinity")


def engine_for_tests() -> Engine:
    """The engine of this machine, with :data:`IMAGE`."""
    console = Console()
    engine = ensure_engine("000000", console)
    ensure_base_image(engine, console)
    if not engine.has_image(IMAGE):
        engine.build_image(DOCKERFILE, IMAGE)
    return engine


@dataclass(kw_only=True)
class EngineMachine:
    """One machine, entered with ``docker exec -i NAME /usr/sbin/sshd -i``.

    ``container`` is what its engine calls the container that Ray would run in; Ray's logs are
    there, and Python.
    """

    engine: Engine
    public_key: str
    container: str = "ray_docker"
    name: str = field(default_factory=lambda: f"rayfleet-tests-{secrets.token_hex(4)}")

    def start(self) -> None:
        """Start the machine, its engine and the container."""
        # Where --privileged is not allowed, because this machine lacks a capability itself, all
        # the others are enough.
        self.machine.start()
        wait_until(
            lambda: self._run("docker version", check=False)[0] == 0,
            what="the engine of the machine",
            timeout=START_SECONDS,
            interval=0.2,
            reason=lambda: self._run("tail -n 3 /var/log/dockerd.log", check=False)[1],
        )
        key = shlex.quote(self.public_key)
        self._run(f"echo {key} > ~/.ssh/authorized_keys && chmod 600 ~/.ssh/*")
        self.sh(f"set -- {shlex.quote(self.container)}\n{RAY}")

    def stop(self) -> None:
        """Remove it, with all that it has made."""
        if "machine" in self.__dict__:
            self._run("docker rm --force --volumes $(docker ps -aq)", check=False)
            remove_container(self.engine.client, self.name)

    @cached_property
    def machine(self) -> Container:
        """The container that is the machine."""
        return self.engine.client.containers.create(
            IMAGE,
            command=["sh", "-c", START],
            name=self.name,
            init=True,
            # Killed tests leave nothing for long.
            auto_remove=True,
            network_mode="none",
            labels={LABEL: "true"},
            cap_add=["ALL"],
            cap_drop=["SYS_RESOURCE"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            volumes={"/sys/fs/cgroup": {"bind": "/sys/fs/cgroup", "mode": "rw"}},
        )

    @property
    def host_key(self) -> str:
        """The machine's public host key."""
        return self.sh("cat /etc/ssh/ssh_host_ed25519_key.pub")

    def sh(self, script: str) -> str:
        """What a script on the machine prints."""
        return self._run(script)[1]

    def inside(self) -> tuple[str, ...]:
        """The command lines of the processes in the container, but for those of an idle one."""
        rows = self.sh(f"docker top {self.container} -eo pid,args").splitlines()[1:]
        lines = (row.split(maxsplit=1)[1] for row in rows)
        return tuple(line for line in lines if not line.startswith(_IDLE))

    def sessions(self) -> tuple[int, ...]:
        """The processes, on the machine, that are the operators' connections."""
        rows = (row.split(maxsplit=1) for row in self.sh("ps -eo pid=,args=").splitlines())
        return tuple(int(pid) for pid, line in rows if line.startswith("sshd: "))

    def cut(self) -> None:
        """End every operator's connection, as when the network is lost."""
        # One that has ended meanwhile is what is wanted.
        self._run(f"kill -s KILL {' '.join(map(str, self.sessions()))}", check=False)

    def _run(self, script: str, *, check: bool = True) -> tuple[int, str]:
        answer: Any = self.machine.exec_run(["timeout", str(SECONDS), "sh", "-c", script])
        code, output = answer.exit_code, answer.output.decode(errors="replace")
        assert not check or code == 0, f"{script}: exit {code}\n{output}"
        return code, output
