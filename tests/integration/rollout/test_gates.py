"""The gates against a real Ray head behind a real sshd."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.cluster.channel import CommandResult
from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.head import Head
from rayfleet.cluster.started import record_start
from rayfleet.errors import ToolFailed
from rayfleet.job.client import JobClient
from rayfleet.job.infrastructure import INFRASTRUCTURE, ROLE
from rayfleet.job.model import JobRequest
from rayfleet.rollout.gates.capacity import AUTOSCALER, WORKERS
from rayfleet.rollout.gates.chosen import trouble
from rayfleet.rollout.gates.gate import Gate, GateTimes
from rayfleet.rollout.gates.inside import look_inside
from rayfleet.rollout.gates.probe import PREFIX, SETTLED_SECONDS, Probe, sweep
from rayfleet.rollout.gates.run import run_gates
from rayfleet.rollout.gates.running import AGE, CONFIG, HEALTH, IMAGE, SSH, VERSION
from rayfleet.rollout.gates.subject import Subject, Wanted
from rayfleet.rollout.model import Output
from rayfleet.waiting import SystemClock, wait_until
from tests.support.ray_head import LocalRayHead
from tests.support.sshd import LocalSshd
from tests.unit.rollout.gates.fakes import CLUSTER, config_of

pytestmark = pytest.mark.integration

PATIENT = GateTimes(interval=0.2, timeout=240.0)
BASIC = (SSH, HEALTH, VERSION, AGE)


class Interrupting(SystemClock):
    """The real clock; does ``deed`` at the first pause."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed: Callable[[], object] | None = deed

    def sleep(self, seconds: float) -> None:
        """Pause, after the deed."""
        deed, self._deed = self._deed, None
        if deed is not None:
            deed()
        super().sleep(seconds)


@pytest.fixture(scope="module")
def emptied() -> float:
    """When there was no head yet."""
    return time.time()


@pytest.fixture(scope="module")
def ray_head(emptied: float) -> Iterator[LocalRayHead]:
    assert emptied <= time.time()
    with LocalRayHead(token="right-token-of-the-test") as head:
        yield head


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's home, without keys and ssh_config."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def sshd(tmp_path: Path, home: Path) -> Iterator[LocalSshd]:
    assert home.is_dir()
    server = LocalSshd(folder=tmp_path / "sshd")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def config(tmp_path: Path) -> LaunchConfig:
    """A config without a minimum of workers and without a pinned digest."""
    path = tmp_path / "us-east5.yaml"
    path.write_text("cluster_name: marin-us-east5\n")
    return replace(config_of({}, image="host/repo/name:tag"), path=path)


@pytest.fixture
def subject(
    sshd: LocalSshd, ray_head: LocalRayHead, config: LaunchConfig, emptied: float
) -> Iterator[Subject]:
    with a_subject(sshd, ray_head, config, emptied=emptied, token=ray_head.token) as found:
        yield found


def a_subject(
    sshd: LocalSshd,
    ray_head: LocalRayHead,
    config: LaunchConfig,
    *,
    emptied: float | None,
    token: str | None,
) -> Subject:
    wanted = Wanted(rollout="r1", cluster=CLUSTER, config=config, emptied=emptied)
    return Subject(wanted, lambda: Head.open(sshd.address()), token=token, port=ray_head.port)


def ask(subject: Subject, *gates: Gate, clock: SystemClock | None = None) -> Output:
    times: Mapping[str, GateTimes] = {gate.name: PATIENT for gate in gates}
    return run_gates(gates, subject, times=times, narrate=lambda text: None, clock=clock)


def test_a_well_head_passes_every_gate(
    subject: Subject, sshd: LocalSshd, config: LaunchConfig, tmp_path: Path
) -> None:
    import ray

    with Head.open(sshd.address()) as head:
        record_start(head, config, state=tmp_path / "state", node="local")
    gates = (*BASIC, IMAGE, CONFIG, WORKERS, AUTOSCALER, Probe())
    output = ask(subject, *gates)
    assert list(output["passed"]) == [gate.name for gate in gates]  # type: ignore[call-overload]
    assert output["ray"] == ray.__version__
    assert output["workers"] == {}
    assert trouble(subject) == ""


def test_the_gates_of_a_well_head_need_little_time_and_one_connection(
    subject: Subject, sshd: LocalSshd
) -> None:
    gates = (*BASIC, WORKERS, AUTOSCALER)
    ask(subject, *gates)
    assert len(sshd.sessions()) == 1
    began = time.process_time()
    ask(subject, *gates)
    # Processor time, so that a busy machine does not count: 30 ms here.
    assert time.process_time() - began < 1.0


def test_a_head_from_before_the_stop_is_refused(
    sshd: LocalSshd, ray_head: LocalRayHead, config: LaunchConfig
) -> None:
    with (
        a_subject(
            sshd, ray_head, config, emptied=time.time() + 3600, token=ray_head.token
        ) as subject,
        pytest.raises(ToolFailed, match="the gate age says no: the GCS has run for"),
    ):
        ask(subject, *BASIC)


@pytest.mark.parametrize(
    ("token", "why"),
    [(None, "it wants a token (HTTP 401)"), ("wrong", "the token is not the cluster's (HTTP 403)")],
)
def test_a_token_that_is_missing_or_wrong_is_named_at_once(
    sshd: LocalSshd,
    ray_head: LocalRayHead,
    config: LaunchConfig,
    token: str | None,
    why: str,
) -> None:
    with (
        a_subject(sshd, ray_head, config, emptied=None, token=token) as subject,
        pytest.raises(ToolFailed) as caught,
    ):
        ask(subject, *BASIC)
    assert why in caught.value.why
    assert "invoke auth.check" in caught.value.next_step


def test_a_connection_that_breaks_meanwhile_is_opened_again(
    subject: Subject, sshd: LocalSshd
) -> None:
    killed: list[int] = []
    clock = Interrupting(lambda: killed.append(sshd.kill_sessions()))
    # The job makes it pause at least once.
    assert "probe" in ask(subject, *BASIC, Probe(), clock=clock)["passed"]  # type: ignore[operator]
    assert killed == [1]


def test_a_head_that_comes_up_while_it_is_asked_is_waited_for(
    sshd: LocalSshd, config: LaunchConfig
) -> None:
    with LocalRayHead() as late:
        late.kill()
        with a_subject(sshd, late, config, emptied=time.time(), token=None) as subject:
            assert "health" in trouble(subject)
            output = ask(subject, *BASIC, Probe(), clock=Interrupting(late.start))
            assert set(output["passed"]) == {  # type: ignore[call-overload]
                *("ssh", "health", "version", "age", "probe")
            }


def test_a_probe_of_a_killed_run_is_taken_over_and_none_comes_back_once_swept(
    subject: Subject, ray_head: LocalRayHead
) -> None:
    jobs = ray_head.jobs()
    left = f"{PREFIX}r1-us-east5-killed"
    flag = ray_head.folder / "go"
    entrypoint = f"sh -c 'until [ -e {flag} ]; do sleep 0.1; done'"
    request = JobRequest(submission_id=left, entrypoint=entrypoint, metadata={ROLE: INFRASTRUCTURE})
    jobs.submit(request)
    before = submits(jobs)
    ask(subject, *BASIC, Probe(entrypoint=entrypoint), clock=Interrupting(flag.touch))
    # No other was submitted; those of earlier tests are deleted, and may come back for now.
    assert left in submits(jobs) <= before
    # As long as Ray looks after an ended job, a deleted one comes back as FAILED.
    empty = [time.monotonic()]

    def quiet() -> bool:
        sweep(jobs)
        if submits(jobs):
            empty[0] = time.monotonic()
        return time.monotonic() > empty[0] + SETTLED_SECONDS

    wait_until(quiet, what="the last probe to stay away", timeout=120)


def submits(jobs: JobClient) -> set[str]:
    return {job.submission_id for job in jobs.list() if job.submission_id.startswith(PREFIX)}


DOCKER = """\
#!/bin/sh
case "$1" in
  inspect) case "$3" in *Running*) echo true ;; *) echo "host/repo/name:tag@sha256:abc" ;; esac ;;
  exec) shift 4; case "$1" in
    cat) echo '{"ray": "2.60.0"}' ;;
    ps) case "$*" in *gcs_server*) echo "  77 /ray/gcs_server --session-name=s1" ;;
        *) echo "python /opt/ray/lib/ray/autoscaler/v2/monitor.py --logs" ;; esac ;;
  esac ;;
esac
"""


class Shell:
    """A head that is this machine, with programs of its own first in PATH."""

    def __init__(self, folder: Path, sshd: LocalSshd) -> None:
        self.folder = folder
        self.address = sshd.address(container="ray_docker")

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """Run it as a login shell does."""
        done = subprocess.run(
            ["sh", "-c", command],
            env={"PATH": f"{self.folder}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return CommandResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_where_ray_runs_in_a_container_that_is_asked(tmp_path: Path, sshd: LocalSshd) -> None:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    inside = look_inside(Shell(program.parent, sshd))  # type: ignore[arg-type]
    assert inside.image == "host/repo/name:tag@sha256:abc"
    assert (inside.ray, inside.age("s1"), inside.autoscaler) == ("2.60.0", 77, True)


def test_a_head_without_a_container_tells_of_its_own_processes(subject: Subject) -> None:
    found = look_inside(subject.head())
    assert found.image == ""
    assert found.age(subject.session()) is not None
    assert found.autoscaler
