"""``invoke doctor``: each thing that may be missing is found, with the command that mends it."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rayfleet.console import Console
from rayfleet.doctor import google, local, sandbox
from rayfleet.doctor.examine import examine, run_all
from rayfleet.doctor.machine import EngineFacts, free_loopback_ports
from rayfleet.doctor.report import Check, Report, State, missing, ok, warn
from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet, Ssh
from rayfleet.image.build.builder import Builder, Kind
from rayfleet.project import Project, find_project

ROOT = Path(__file__).parents[2]
GIB = 1024**3
ENGINE = EngineFacts(version="20.10", root=Path("/var/lib/docker"))


@dataclass
class FakeMachine:
    """A machine that has what it is told; a program answers with its own command line."""

    programs: set[str] = field(default_factory=lambda: {"git", "ssh", "rsync", "docker", "apt-get"})
    free: int = 100 * GIB
    memory: int = 16 * GIB
    facts: EngineFacts | None = ENGINE
    silent: set[str] = field(default_factory=set)

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

    def first_line(self, *argv: str) -> str:
        line = " ".join(argv)
        known = Path(argv[0]).name in self.programs
        return line if known and not any(part in line for part in self.silent) else ""

    def free_bytes(self, folder: Path) -> int:
        return self.free

    def memory_bytes(self) -> int:
        return self.memory

    def engine(self) -> EngineFacts | None:
        return self.facts


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return find_project(ROOT, state=str(tmp_path / "state"))


@pytest.fixture
def fleet(project: Project) -> Fleet:
    return load_fleet(project.fleet_file, root=project.root, state=project.state)


def buildkit() -> Builder:
    return Builder(program="/usr/bin/docker", kind=Kind.BUILDKIT)


def no_client() -> Builder:
    raise PrerequisiteMissing("there is no docker client on PATH")


def test_a_machine_that_has_everything_lacks_nothing(fleet: Fleet, project: Project) -> None:
    report = examine(fleet, project, machine=FakeMachine(), find_builder=buildkit)
    assert report.missing == ()
    report.raise_missing()


def test_an_empty_machine_is_told_what_to_install(fleet: Fleet, project: Project) -> None:
    empty = FakeMachine(programs={"apt-get"}, facts=None, free=GIB)
    report = examine(fleet, project, machine=empty, find_builder=no_client)
    found = {check.name: check.remedy for check in report.missing}
    needed = ("git", "ssh", "rsync", "docker engine", "docker client", "disk (state)", "ssh proxy")
    assert set(found) == set(needed)
    assert found["ssh"].endswith("apt-get install -y openssh-client")
    assert found["docker engine"] == "invoke sandbox.up"
    with pytest.raises(PrerequisiteMissing, match=r"lacks .*docker engine"):
        report.raise_missing()


def test_every_check_that_is_not_ok_has_a_remedy(fleet: Fleet, project: Project) -> None:
    poor = FakeMachine(programs=set(), facts=None, free=0, memory=GIB)
    checks = examine(fleet, project, machine=poor, find_builder=no_client).checks
    assert [
        check.name for check in checks if check.state is not State.OK and not check.remedy
    ] == []


def test_a_ray_that_is_not_the_locked_one_is_found(project: Project, tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text("ray==2.60.0 \\\n    --hash=sha256:0\n")
    moved = replace(project, root=tmp_path)
    assert local.ray_check(moved, "2.60.0").state is State.OK
    assert local.ray_check(moved, "2.59.1").state is State.MISSING
    assert local.ray_check(moved, "").remedy == "make setup"
    assert local.ray_check(replace(project, root=tmp_path / "no-lock"), "2.59.1").state is State.OK


@pytest.mark.parametrize(
    ("invoke", "fabric", "state"),
    [
        ("2.2.1", "3.2.3", State.OK),
        ("2.2.0", "3.3", State.OK),
        ("3.0.3", "3.2.3", State.MISSING),
        ("2.2.1", "3.2.2", State.MISSING),
        ("", "", State.MISSING),
    ],
)
def test_invoke_and_fabric_must_be_a_pair(invoke: str, fabric: str, state: State) -> None:
    assert local.pair_check(invoke, fabric).state is state


def test_a_project_without_a_commit_is_found(project: Project) -> None:
    check = local.git_check(project, FakeMachine(silent={"rev-parse"}))
    assert (check.state, "no commit" in check.found) == (State.MISSING, True)


@pytest.mark.parametrize(
    ("kind", "state"),
    [(Kind.BUILDX, State.OK), (Kind.BUILDKIT, State.OK), (Kind.CLASSIC, State.WARN)],
)
def test_a_client_without_buildkit_is_a_warning(kind: Kind, state: State) -> None:
    def find() -> Builder:
        return Builder(program="/usr/bin/docker", kind=kind)

    assert local.client_check(FakeMachine(), find).state is state


def test_a_state_folder_below_a_file_is_found(project: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = local.state_check(replace(project, state=tmp_path / "file" / "state"))
    assert check.state is State.MISSING


def test_ports_are_really_taken_and_given_back() -> None:
    assert free_loopback_ports(4) == 4
    assert local.ports_check(wanted=2).state is State.OK


def test_little_memory_is_a_warning_that_counts_the_clusters(fleet: Fleet) -> None:
    check = sandbox.memory_check(fleet, FakeMachine(memory=4 * GIB))
    assert (check.state, check.found) == (State.WARN, "4 GiB for 4 clusters, 8 advised")


def test_the_key_of_the_heads_must_be_there_and_private(tmp_path: Path) -> None:
    private, public = tmp_path / "key", tmp_path / "key.pub"
    assert google.key_check(str(private), "").state is State.MISSING
    private.touch(mode=0o644)
    assert google.key_check(str(private), "").remedy == f"chmod 600 {private}"
    private.chmod(0o600)
    assert google.key_check(str(private), str(public)).found == f"no {public}"
    public.touch()
    assert google.key_check(str(private), str(public)).state is State.OK


def test_the_library_that_ray_needs_for_google_is_looked_for() -> None:
    assert google.client_check(("json",)).state is State.OK
    assert "no_such_module" in google.client_check(("json", "no_such_module")).found


def test_every_key_of_the_fleet_is_checked_once(fleet: Fleet) -> None:
    ssh = Ssh(private_key="~/.ssh/marin", public_key="~/.ssh/marin.pub")
    clusters = {name: replace(each, ssh=ssh) for name, each in fleet.clusters.items()}
    names = list(google.google_checks(replace(fleet, clusters=clusters)))
    assert names == ["google credentials", "ray's google client", "ssh key ~/.ssh/marin"]


def test_a_check_that_hangs_or_breaks_is_reported_as_missing() -> None:
    never = threading.Event()

    def hang() -> Check:
        never.wait(30)
        return ok("slow", "late")

    def break_down() -> Check:
        raise OSError("no /proc")

    probes = [("slow", hang), ("broken", break_down), ("fine", lambda: ok("fine", "yes"))]
    slow, broken, fine = run_all(probes, timeout=1.0)
    never.set()
    assert (slow.state, slow.found) == (State.MISSING, "no answer within 1 s")
    assert (broken.state, broken.found) == (State.MISSING, "OSError: no /proc")
    assert fine.state is State.OK


def test_a_report_prints_a_table_and_json() -> None:
    report = Report(checks=(ok("a", "1"), warn("b", "2", "mend b"), missing("c", "3", "mend c")))
    table, document = io.StringIO(), io.StringIO()
    report.show(Console(out=table, err=io.StringIO()), as_json=False)
    report.show(Console(out=document, err=io.StringIO()), as_json=True)
    assert "mend c" in table.getvalue()
    assert json.loads(document.getvalue())[2] == {
        "name": "c",
        "state": "missing",
        "found": "3",
        "remedy": "mend c",
    }
