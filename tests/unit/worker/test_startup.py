"""The start-up script's content, and the script itself, run with stand-ins for what it calls."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rayfleet.waiting import wait_until
from rayfleet.worker.startup import startup_script
from tests.support.google_cluster import CONFIGS, read_config, read_production

SECONDS = 60.0  # until a stand-in must have been called

STAND_INS = {
    # Time: nobody waits, and what was asked for is on record.
    "sleep": "exec /bin/sleep 0.02",
    "gcloud": 'cat "$WORLD/head" 2> /dev/null',
    "systemctl": "exit 0",
    "systemd-run": "exit 0",
    "id": "exit 0",
    "usermod": "exit 0",
    "timeout": 'shift; exec "$@"',
    "curl": """case "$*" in
*attributes/startup-script) cat "$WORLD/wanted" 2> /dev/null || exit 22 ;;
*PUT*) while [ "$1" != --data ]; do shift; done; echo "$2" >> "$WORLD/told" ;;
esac""",
    "docker": """case "$1" in
run) touch "$WORLD/container" ;;
rm) rm -f "$WORLD/container" ;;
inspect) [ -e "$WORLD/container" ] && echo true || echo false ;;
top) echo "raylet --raylet" ;;
logs) cat "$WORLD/log" 2> /dev/null ;;
pull) [ ! -e "$WORLD/no-image" ] ;;
esac""",
}


@dataclass
class Machine:
    """A machine of a slice, in ``folder``."""

    folder: Path
    content: dict[str, Any]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tools = self.folder / "bin"
        tools.mkdir()
        for name, body in STAND_INS.items():
            note = f'printf "%s\\n" "{name} $*" >> "$WORLD/calls"' if name != "timeout" else ""
            (tools / name).write_text(f"#!/bin/bash\n{note}\n{body}\n")
            (tools / name).chmod(0o755)
        self.want(self.content)
        self.environment = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "WORLD": str(self.folder),
            "RAYFLEET_FOLDER": str(self.folder / "lib"),
            "HOME": str(self.folder),
        }

    def want(self, content: dict[str, Any]) -> None:
        """Let the metadata have the script for ``content``."""
        new = self.folder / "wanted.new"
        new.write_text(startup_script(content))
        new.rename(self.folder / "wanted")

    def head(self, text: str) -> None:
        """Let gcloud find this head."""
        (self.folder / "head").write_text(text)

    def boot(self) -> None:
        """As the machine does it: the script of the metadata, and then the service it made."""
        script = self.folder / "startup"
        script.write_text((self.folder / "wanted").read_text())
        subprocess.run(["bash", script], env=self.environment, check=True, timeout=SECONDS)
        call = self.calls("systemd-run")[-1]
        service = shlex.split(call)[-3:]
        assert "--property=Restart=always" in call
        assert service[0] == "bash"
        with (self.folder / "journal").open("ab") as journal:
            self.running.append(
                subprocess.Popen(
                    service,
                    env=self.environment,
                    stdout=journal,
                    stderr=journal,
                    start_new_session=True,
                )
            )

    def power_off(self) -> None:
        """What ran is gone; files stay."""
        for process in self.running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(SECONDS)
        self.running.clear()

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def calls(self, tool: str) -> list[str]:
        return [line for line in self.lines("calls") if line.split()[0] == tool]

    def starts(self) -> list[str]:
        """The containers that were run so far."""
        return [line for line in self.calls("docker") if line.startswith("docker run ")]

    def wait_for(self, told: str, times: int = 1) -> None:
        """Wait until the machine has told this so often."""
        wait_until(
            lambda: sum(line.startswith(told) for line in self.lines("told")) >= times,
            what=f"{told} {times} times",
            timeout=SECONDS,
            interval=0.02,
            reason=lambda: "\n".join((*self.lines("told"), *self.lines("journal")[-5:])),
        )


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    content = read_production("us-east5-a")
    content["initialization_commands"] = [f"echo prepared >> {tmp_path}/prepared"]
    made = Machine(tmp_path, content)
    yield made
    made.power_off()


def mismatch(wanted: str) -> str:
    """What Ray says when it is to join a head of another version."""
    from ray._private.utils import check_version_info, compute_version_info

    head = {"ray_version": wanted, "python_version": compute_version_info()[1]}
    with pytest.raises(RuntimeError) as error:
        check_version_info(head, "node 10.0.0.7")
    return str(error.value)


def other_image(content: dict[str, Any], image: str) -> dict[str, Any]:
    return {**content, "docker": {**content["docker"], "image": image}}


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_every_production_config_gives_a_sound_script(path: Path, tmp_path: Path) -> None:
    content = read_config(path)
    script = tmp_path / "script"
    script.write_text(startup_script(content))
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text()
    assert len(text) < 256 * 1024  # Google's limit for one value of the metadata
    assert content["docker"]["image"] in text
    assert "ray start --block --address=$RAY_HEAD_IP:6379" in text
    options = text.partition("readonly OPTIONS=(")[2].partition("\n")[0]
    assert "--privileged" in options
    assert "--restart" not in options
    assert "--rm" not in options
    assert "gcloud secrets versions access latest" in text  # and no secret itself


def test_it_waits_for_the_head_with_longer_and_longer_pauses_and_joins(machine: Machine) -> None:
    machine.boot()
    machine.wait_for("waiting-for-head")
    wait_until(
        lambda: "sleep 300" in machine.calls("sleep"), what="the longest pause", timeout=SECONDS
    )
    assert [line for line in machine.calls("sleep") if line != "sleep 300"] == [
        f"sleep {5 * 2**power}" for power in range(6)
    ]
    assert machine.starts() == []
    machine.head("10.0.0.5\t111\n")
    machine.wait_for("joined")
    (start,) = machine.starts()
    image = machine.content["docker"]["image"]
    assert f"{image} bash /run/rayfleet-entry.sh" in start
    assert "--env RAY_HEAD_IP=10.0.0.5 " in start
    assert machine.lines("prepared") == ["prepared"]
    (query,) = {line for line in machine.calls("gcloud") if "instances list" in line}
    for part in (
        "--project=hai-gcp-models",
        "--zones=us-east5-a",
        "labels.ray-cluster-name=marin-us-east5-a AND labels.ray-node-type=head",
    ):
        assert part in query
    assert f"joined {image} " in machine.lines("told")


def test_it_joins_a_new_head_with_secrets_that_are_fetched_anew(machine: Machine) -> None:
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    machine.wait_for("joined")
    machine.head("10.0.0.9\t222\n")  # the container goes on, for Ray has not noticed
    machine.wait_for("joined")
    wait_until(lambda: len(machine.starts()) == 2, what="a second start", timeout=SECONDS)
    assert "--env RAY_HEAD_IP=10.0.0.9 " in machine.starts()[1]
    assert len(machine.lines("prepared")) == 2
    # Who logs in to look at the container is not who runs the script.
    assert set(machine.calls("usermod")) == {"usermod -aG docker ray"}


def test_it_joins_again_when_the_container_ended_with_its_head(machine: Machine) -> None:
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    machine.wait_for("joined")
    machine.head("")
    (machine.folder / "container").unlink()
    machine.wait_for("lost-head")
    machine.wait_for("waiting-for-head")
    machine.head("10.0.0.5\t333\n")
    machine.wait_for("joined", times=2)


def test_it_joins_again_after_a_reboot(machine: Machine) -> None:
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    machine.wait_for("joined")
    machine.power_off()
    machine.boot()
    machine.wait_for("joined", times=2)
    removals = [line for line in machine.calls("docker") if line.startswith("docker rm")]
    assert len(removals) == len(machine.starts()) == 2


def test_another_ray_than_the_heads_is_told_and_the_next_image_taken(machine: Machine) -> None:
    (machine.folder / "log").write_text(f"RuntimeError: {mismatch('9.9.9')}")
    docker = machine.folder / "bin" / "docker"
    joins = docker.read_text()
    docker.write_text(joins.replace('touch "$WORLD/container"', "true"))
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    old = machine.content["docker"]["image"]
    python = ".".join(map(str, sys.version_info[:3]))
    here, there = (f"Ray: {ray} Python: {python}" for ray in (version("ray"), "9.9.9"))
    told = f"version-mismatch {old} {there} {here}"
    machine.wait_for(told)
    new = docker.with_name("docker.new")
    new.write_text(joins)
    new.chmod(0o755)
    new.rename(docker)
    machine.want(other_image(machine.content, "registry/image:new"))
    machine.wait_for("joined registry/image:new")
    assert "registry/image:new" in machine.starts()[-1]


def test_a_script_that_is_no_bash_is_not_taken(machine: Machine) -> None:
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    machine.wait_for("joined")
    (machine.folder / "wanted").write_text("if\n")
    looks = len(machine.calls("curl"))
    wait_until(lambda: len(machine.calls("curl")) > looks + 3, what="a look", timeout=SECONDS)
    assert len(machine.starts()) == 1
    machine.want(other_image(machine.content, "registry/image:new"))
    machine.wait_for("joined registry/image:new")


@pytest.mark.parametrize("trouble", ["no-image", "host-not-ready"])
def test_what_does_not_work_is_told_and_tried_again(machine: Machine, trouble: str) -> None:
    flag = machine.folder / "no-image"
    if trouble == "host-not-ready":
        machine.content["initialization_commands"] = [f"test ! -e {flag}"]
        machine.want(machine.content)
    flag.touch()
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    machine.wait_for(trouble)
    flag.unlink()
    machine.wait_for("joined")


def test_the_container_runs_the_commands_of_the_config_one_by_one(machine: Machine) -> None:
    out = machine.folder / "ran"
    machine.content["setup_commands"] = [f"echo 'set up' >> {out}", "cd /"]
    machine.content["worker_setup_commands"] = [f"pwd >> {out}"]
    machine.content["worker_start_ray_commands"] = ["ray stop", 'ray start --address="$A b"']
    machine.want(machine.content)
    ray = machine.folder / "bin" / "ray"
    ray.write_text(f'#!/bin/bash\nprintf "%s|" "$@" >> {out}; echo >> {out}\n')
    ray.chmod(0o755)
    machine.head("10.0.0.5\t111\n")
    machine.boot()
    machine.wait_for("joined")
    entry = machine.folder / "lib" / "entry.sh"
    # A login shell of this machine would forget the stand-ins.
    entry.write_text(entry.read_text().replace("bash --login", "bash"))
    subprocess.run(
        ["bash", entry], env=machine.environment | {"A": "a"}, cwd=machine.folder, check=True
    )
    assert machine.lines("ran") == [
        "set up",
        str(machine.folder),
        "stop|",
        "start|--block|--address=a b|",
    ]
    start = shlex.split(machine.starts()[0])
    assert f"RAY_OVERRIDE_RESOURCES={json.dumps({'CPU': 120})}" in machine.starts()[0]
    assert "--net=host" in start
