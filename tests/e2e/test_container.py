"""Ray in a container on a machine of its own engine, as in production: what is started there ends.

An engine lets run on what a killed ``docker exec`` has started, and sshd what a lost connection
has.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayfleet.cluster.channel import Stream
from rayfleet.cluster.head import Head
from rayfleet.cluster.heads import Heads
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.log.follow import start_program
from rayfleet.waiting import wait_until
from tests.support.engine_machine import EngineMachine, engine_for_tests
from tests.support.loopback_fleet import LoopbackFleet
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.support.sshd import make_key

CLUSTER = "us-east5"
# Not what the templates call it, and nothing else on this machine is called so.
CONTAINER = "ray_of-tests.1"
INVOKE = str(Path(sys.executable).with_name("invoke"))
LOGS = "/tmp/ray/session_2026-01-01_00-00-00_000000_1/logs"
LOG = f"{LOGS}/monitor.log"
TAIL = {
    "root": "/tmp/ray",
    "patterns": [{"glob": "monitor.log", "role": "autoscaler"}],
    "follow": True,
    "tail": 1,
}
GONE_SECONDS = 30.0
SECONDS = 120.0
# In the home there, behind what keeps other shells out; a greeting as many have.
BASHRC = """\
echo Welcome; echo careful >&2
case $- in *i*) ;; *) return ;; esac
PATH=$PATH:/tmp/opt/bin
"""


class Place:
    """The fleet whose only head is the machine."""

    def __init__(self, folder: Path) -> None:
        make_key(folder / "client_key")
        self.machine = EngineMachine(
            engine=engine_for_tests(),
            public_key=(folder / "client_key.pub").read_text().strip(),
            container=CONTAINER,
        )
        self.fleet = LoopbackFleet(
            folder=folder / "fleet",
            proxy_command="docker exec -i %h /usr/sbin/sshd -i",
            user="root",
        )
        (self.fleet.folder / "keys").mkdir()
        (folder / "client_key").rename(self.fleet.folder / "keys" / "client_key")

    def start(self) -> None:
        self.machine.start()
        self.machine.sh(f"mkdir -p {LOGS} && echo first > {LOG}")
        self.machine.sh(f"ln -s {LOGS.rpartition('/')[0]} /tmp/ray/session_latest")
        self.fleet.nodes[CLUSTER][self.machine.name] = {"kind": "head", "key": ""}
        self.fleet.save()
        cluster = self.fleet.fleet.clusters[CLUSTER]
        record_host_key(self.fleet.known_hosts, cluster.identity, self.machine.host_key)
        config = self.fleet.fleet.config_path(cluster)
        content = read_yaml(config.read_text())
        content["docker"] = {"image": "ray", "container_name": CONTAINER}
        config.write_text(write_yaml(content))

    def heads(self) -> Heads:
        return self.fleet.heads()

    @contextmanager
    def invoke(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A task as a process, which is not left behind."""
        with subprocess.Popen(
            ["env", "--default-signal=INT", INVOKE, *words],
            cwd=self.fleet.folder,
            env=self.fleet.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def finished(self, *words: str) -> tuple[int, str, str]:
        """The code, the output and the narration of a task."""
        with self.invoke(*words) as process:
            out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out.decode(), err.decode()

    def must_have(self, count: int, what: str) -> None:
        """Wait until as many processes of ``what`` are in the container."""
        found: list[tuple[str, ...]] = []

        def right() -> bool:
            found[:] = [self.machine.inside()]
            return sum(line.startswith(what) for line in found[0]) == count

        wait_until(
            right,
            what=f"{count} of {what} in the container",
            timeout=GONE_SECONDS,
            interval=0.2,
            reason=lambda: "\n".join(found[0]),
        )

    def must_be_idle(self) -> None:
        """Wait until nothing of an operator's is left in the container."""
        wait_until(
            lambda: not self.machine.inside(),
            what="the end of all that was started in the container",
            timeout=GONE_SECONDS,
            interval=0.2,
            reason=lambda: "\n".join(self.machine.inside()),
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("container"))
    try:
        place.start()
        yield place
    finally:
        place.machine.stop()


PROGRAM = "python3 -I -S"


def tail(head: Head) -> Stream:
    """A tail that has begun."""
    stream = start_program(head, TAIL | {"first": True, "session": "", "cursors": []})
    seen = b""
    for chunk in stream:
        seen += chunk
        if b"caught-up" in seen:
            return stream
    raise AssertionError(f"it ended: {stream.stderr}")


def test_no_tail_is_left_in_the_container_however_it_ends(place: Place) -> None:
    with place.heads() as heads:
        (target,) = heads.targets([place.fleet.fleet.clusters[CLUSTER]])
        head = heads.open(target)
        streams = [tail(head) for _ in range(10)]
        place.must_have(10, PROGRAM)
        for stream in streams[:4]:
            stream.close()
        place.must_have(6, PROGRAM)
        head.close()
        place.must_be_idle()
        head = heads.open(target)
        streams = [tail(head) for _ in range(9)]
        place.must_have(9, PROGRAM)
        place.machine.cut()
        place.must_be_idle()
    with place.invoke("tail-logs", "--cluster", CLUSTER, "--tail", "1") as process:
        place.must_have(1, PROGRAM)
        for line in ("second", "third", "fourth"):
            place.machine.cut()
            # The one before has gone, and the next has come.
            place.machine.sh(f"echo {line} >> {LOG}")
            while line not in process.stdout.readline().decode():  # type: ignore[union-attr]
                assert process.poll() is None
            place.must_have(1, PROGRAM)
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
    place.must_be_idle()


STUBBORN = "trap '' TERM; sleep 601 & sleep 602; sleep 603"


def test_a_command_that_takes_too_long_or_is_broken_off_ends_with_its_children(
    place: Place,
) -> None:
    words = ("exec", "--cluster", CLUSTER, "--container")
    code, _, err = place.finished(*words, "--timeout", "2s", "--", STUBBORN)
    assert (code, "did not end within 2 s" in err) == (2, True)
    with place.invoke(*words, "--", "sleep 604 & sleep 605") as process:
        place.must_have(1, "sleep 604")
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)
        assert process.returncode == 130
    place.must_be_idle()
    # On the machine itself, too.
    code, _, err = place.finished("exec", "--cluster", CLUSTER, "--timeout", "2s", "--", STUBBORN)
    assert code == 2
    wait_until(
        lambda: "sleep 60" not in place.machine.sh("ps -eo args="),
        what="the end of the command on the machine",
        timeout=GONE_SECONDS,
        interval=0.2,
    )


def test_what_operators_run_in_the_container_finds_ray(place: Place) -> None:
    place.machine.sh(
        "mkdir -p /tmp/opt/bin && printf '#!/bin/sh\\necho \"ray, version 2.60.0\"\\nexit 5\\n'"
        " > /tmp/opt/bin/ray && chmod +x /tmp/opt/bin/ray"
    )
    place.machine.sh(f"docker exec -i {CONTAINER} sh -c 'cat > ~/.bashrc' <<'END'\n{BASHRC}END")
    words = ("exec", "--cluster", CLUSTER, "--container", "--json", "--", "ray", "--version")
    code, out, _ = place.finished(*words)
    (row,) = json.loads(out)
    assert (row["stdout"], row["stderr"], row["code"]) == ("ray, version 2.60.0\n", "", 5)
    assert code == 2
    # Not on the machine: there is no Ray, and the way to it is told.
    code, _, err = place.finished("exec", "--cluster", CLUSTER, "--", "ray --version")
    assert (code, "--container" in err) == (2, True)


def test_a_login_in_the_container_that_is_cut_off_ends_there(place: Place) -> None:
    words = (INVOKE, "ssh", "--cluster", CLUSTER, "--container", "--", "sleep 606")
    process = subprocess.Popen(
        [
            "script",
            "--quiet",
            "--return",
            "--command",
            " ".join(f"'{w}'" for w in words),
            "/dev/null",
        ],
        cwd=place.fleet.folder,
        env=place.fleet.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        place.must_have(1, "sleep 606")
        place.machine.cut()
        process.wait(SECONDS)
        place.must_be_idle()
    finally:
        process.kill()
        process.wait(SECONDS)
