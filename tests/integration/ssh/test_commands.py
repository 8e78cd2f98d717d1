"""invoke ssh, exec, upload and download as an operator types them, against Debian's own sshd."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.__main__ import program
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.waiting import wait_until
from tests.support.loopback_fleet import LoopbackFleet
from tests.support.processes import with_default_signals
from tests.support.sshd import PROGRAM, LocalSshd, make_key

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason="needs sshd"),
]

INVOKE = str(Path(sys.executable).with_name("invoke"))
SECONDS = 120.0
IAP = (
    "gcloud compute start-iap-tunnel %h %p --listen-on-stdin --project=hai --region=us-east5 "
    "--network=default --dest-group=heads --verbosity=warning"
)


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


@dataclass(frozen=True)
class Operator:
    """Somebody at a shell in the project of ``fleet``."""

    fleet: LoopbackFleet
    patch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[bytes]

    def types(self, *words: str) -> Said:
        """Run a task without a terminal, in this process: it costs seconds to start another."""
        self.patch.setattr(sys, "argv", ["invoke", *words])
        self.patch.chdir(self.fleet.folder)
        self.captured.readouterr()
        code: object = 0
        try:
            program.run()
        except SystemExit as end:
            code = end.code
        out, err = self.captured.readouterr()
        assert isinstance(code, int)
        return Said(code, out, err.decode())

    def runs(self, *argv: str, given: bytes = b"") -> Said:
        """Run a program as a process of its own."""
        done = subprocess.run(
            argv,
            cwd=self.fleet.folder,
            env=self.fleet.environment(),
            input=given,
            capture_output=True,
            timeout=SECONDS,
        )
        return Said(done.returncode, done.stdout, done.stderr.decode())

    def types_on_a_terminal(self, *words: str, shows: str = "", keys: str = "") -> tuple[int, str]:
        """Run invoke on a terminal of its own; press ``keys`` once it ``shows`` something; return
        its code and the screen."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            with_default_signals("setsid", "--ctty", "--wait", INVOKE, *words),
            cwd=self.fleet.folder,
            env=self.fleet.environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        screen = b""
        with suppress(OSError):  # the end of a terminal
            while chunk := os.read(ours, 65536):
                screen += chunk
                if keys and shows.encode() in screen:
                    os.write(ours, keys.encode())
                    keys = ""
        os.close(ours)
        return process.wait(SECONDS), screen.decode(errors="replace")


@pytest.fixture
def fleet(tmp_path: Path) -> LoopbackFleet:
    return LoopbackFleet(folder=tmp_path / "fleet")


@pytest.fixture
def operator(
    fleet: LoopbackFleet,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Operator:
    return Operator(fleet, monkeypatch, capfdbinary)


# exec


def test_what_several_nodes_say_alike_is_shown_once(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    for cluster in ("us-central2", "europe-west4", "us-east5"):
        fleet.add_head(cluster)
    command = 'case $HOME in *europe*) echo other; echo why >&2; exit 3;; esac; printf "one\\ntwo"'
    done = operator.types("exec", "--all", "--", command)
    assert done.text == (
        "--- us-central2, us-east5\none\ntwo\n--- europe-west4: exit code 3\nother\nwhy\n"
    )
    assert done.code == 2
    assert "failed on 1 of 3 nodes: europe-west4" in done.err


def test_a_dead_head_is_told_beside_the_others_and_none_at_all_is_a_code_of_its_own(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    fleet.add_head("us-east5")
    done = operator.types("exec", "--all", "--", "true")
    assert done.text == "--- us-east5: no output\n"
    said = done.err
    assert done.code == 2, said
    assert "us-central2 has no head" in said
    assert "next: invoke status --cluster us-central2 --cluster europe-west4" in said
    done = operator.types("exec", "--cluster", "us-c*", "--cluster", "eu*", "--", "true")
    assert (done.code, done.out) == (4, b"")
    assert "no node could be reached" in done.err


def test_the_only_node_is_shown_as_it_is(fleet: LoopbackFleet, operator: Operator) -> None:
    fleet.add_head("us-east5")
    command = "printf '\\033[1m\\377'; printf err >&2; exit 5"
    done = operator.types("exec", "--cluster", "us-east5", "--", command)
    assert (done.code, done.out) == (2, b"\x1b[1m\xff")
    assert done.err.startswith("err")
    assert "us-east5: the command ended with exit code 5" in done.err


def test_a_terminal_is_shown_no_escape_sequence_of_a_node(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    fleet.add_head("us-east5")
    command = "printf '\\033]0;title\\007\\377fine'"
    code, screen = operator.types_on_a_terminal("exec", "--cluster", "us-east5", "--", command)
    assert code == 0
    assert "\x1b" not in screen
    assert "fine" in screen


def test_words_stay_words_and_one_word_is_a_line_for_the_shell(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    fleet.add_head("us-east5")
    start = ("exec", "--cluster", "us-east5", "--")
    done = operator.types(*start, "printf", "[%s]", "a  b", "$HOME", "--", "'")
    assert done.text == "[a  b][$HOME][--][']"
    assert operator.types(*start, 'echo "a  b" | tr a c').text == "c  b\n"


def test_another_repositorys_tasks_may_hold_ours(fleet: LoopbackFleet, operator: Operator) -> None:
    fleet.add_head("us-east5")
    (fleet.folder / "tasks.py").write_text(
        "import rayfleet.tasks\nfrom invoke import Collection\n"
        "ns = Collection(fleet=rayfleet.tasks.ns)\n"
    )
    done = operator.runs(INVOKE, "fleet.exec", "--cluster", "us-east5", "--", "echo", "a  b")
    assert done.text == "a  b\n", done.err


def test_json_has_a_row_per_node(fleet: LoopbackFleet, operator: Operator) -> None:
    fleet.add_head("us-east5")
    fleet.add_worker("us-east5", "worker-a")
    words = ("exec", "--cluster", "us-e*", "--cluster", "eu*", "--nodes", "all", "--json")
    done = operator.types(*words, "--", "printf 'x\\377'; exit 4")
    absent, head, worker = json.loads(done.out)
    assert (absent["name"], absent["code"]) == ("europe-west4", None)
    assert "has no head" in absent["error"]
    assert (head["name"], head["code"], head["stdout"]) == ("us-east5", 4, "x\ufffd")
    assert (worker["name"], worker["node"]) == ("us-east5/worker-a", "rf-us-east5-worker-a")
    assert (worker["error"], worker["stderr"]) == (None, "")


def test_a_command_that_takes_too_long_is_ended_there(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    fleet.add_head("us-east5")
    words = ("exec", "--cluster", "us-east5", "--timeout", "1s", "--")
    done = operator.types(*words, "echo $$; exec sleep 600")
    assert done.code == 2
    assert "us-east5: the command did not end within 1 s" in done.err
    folder = Path(f"/proc/{int(done.out)}")
    wait_until(lambda: not folder.exists(), what="the end of the command", timeout=30)


def test_nothing_to_run_and_nowhere_to_run_it_are_mistakes(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    done = operator.types("exec", "--cluster", "us-east5")
    assert (done.code, "no command is given" in done.err) == (1, True)
    done = operator.types("exec", "--all", "--nodes", "workers", "--", "true")
    assert (done.code, "no workers now" in done.err) == (1, True)


# ssh


def test_ssh_hands_on_input_output_and_the_exit_code(
    fleet: LoopbackFleet, operator: Operator
) -> None:
    fleet.add_head("us-east5")
    worker = fleet.add_worker("us-east5", "worker-a")
    command = (INVOKE, "ssh", "us-east5", "--", "cat; echo err >&2; exit 7")
    done = operator.runs(*command, given=b"\x00in")
    assert (done.code, done.out, done.err) == (7, b"\x00in", "err\n")
    words = ("ssh", "--cluster", "us-east5", "--node", "worker-*", "--")
    done = operator.types(*words, "printf", "%s", "$HOME", "a  b")
    assert done.out == b"$HOMEa  b"
    assert operator.types(*words, 'printf "$HOME"').text == str(worker.folder)


def test_ssh_logs_in_on_a_terminal(fleet: LoopbackFleet, operator: Operator) -> None:
    fleet.add_head("us-east5")
    keys = "tty\nexit 3\n"
    code, screen = operator.types_on_a_terminal("ssh", "us-east5", keys=keys)
    assert "/dev/pts/" in screen
    assert code == 3


def test_ctrl_c_is_the_commands_and_not_ours(fleet: LoopbackFleet, operator: Operator) -> None:
    fleet.add_head("us-east5")
    words = ("ssh", "us-east5", "--", "trap 'echo caught; exit 9' INT; echo ready; read key")
    code, screen = operator.types_on_a_terminal(*words, shows="ready", keys="\x03")
    assert "caught" in screen
    assert (code, "Traceback" in screen) == (9, False)


def test_an_unknown_and_a_changed_host_key_are_refused_in_our_words(
    fleet: LoopbackFleet, operator: Operator, home: Path
) -> None:
    machine = fleet.add_head("us-east5", known=False)
    done = operator.types("ssh", "us-east5", "--", "true")
    assert done.code == 4
    assert "the host key of rf-us-east5-head-1 is not known" in done.err
    make_key(machine.folder / "other")
    old = (machine.folder / "other.pub").read_text()
    record_host_key(fleet.known_hosts, fleet.fleet.clusters["us-east5"].identity, old)
    for words in (
        ("ssh", "us-east5", "--", "true"),
        ("upload", "--cluster", "us-east5", "tasks.py", str(home)),
    ):
        done = operator.types(*words)
        said = done.err
        assert done.code == 4, said
        assert "has changed" in said
        assert said.count("SHA256:") == 2
        assert "then run: invoke restart --cluster us-east5" in said
        assert "ssh-keygen" not in said


def test_a_jump_host_of_ssh_config_must_be_known_to_both_of_our_ways(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    fleet = LoopbackFleet(folder=tmp_path / "fleet", proxy_command="")
    machine = fleet.add_head("us-east5")
    machine.start()
    jump = LocalSshd(folder=tmp_path / "jump")
    jump.start()
    try:
        (home / ".ssh" / "config").write_text(
            f"Host rf-us-east5-*\n HostName 127.0.0.1\n Port {machine.port}\n ProxyJump jump\n"
            f"Host jump\n HostName localhost\n Port {jump.port}\n IdentitiesOnly yes\n"
            f" IdentityFile {jump.folder / 'client_key'}\n"
        )
        operator = Operator(fleet, monkeypatch, capfdbinary)
        ways = (("ssh", "us-east5"), ("exec", "--cluster", "us-east5"))
        for way in ways:
            assert operator.types(*way, "--", "true").code == 4
        key = (jump.folder / "host_key.pub").read_text()
        (home / ".ssh" / "known_hosts").write_text(f"[localhost]:{jump.port} {key}")
        for way in ways:
            done = operator.types(*way, "--", 'echo "$HOME"')
            assert done.text.strip() == str(machine.folder), done.err
        assert jump.log.read_text().count("Accepted publickey") == 2
    finally:
        jump.stop()
        machine.stop()


def test_the_tunnel_of_googles_proxy_serves_all_ways_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fleet = LoopbackFleet(folder=tmp_path / "fleet", proxy_command=IAP)
    fleet.add_head("us-east5")
    folder = tmp_path / "bin"
    folder.mkdir()
    gcloud = folder / "gcloud"
    gcloud.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {fleet.enter} "$3"\n')
    gcloud.chmod(gcloud.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    operator = Operator(fleet, monkeypatch, capfdbinary)
    for words in (
        ("ssh", "us-east5", "--", "true"),
        ("exec", "--cluster", "us-east5", "--", "true"),
        ("upload", "--cluster", "us-east5", "tasks.py", f"{tmp_path}/there"),
    ):
        done = operator.types(*words)
        assert done.code == 0, done.err
    asked = (tmp_path / "asked").read_text().splitlines()
    expected = IAP.replace("%h", "rf-us-east5-head-1").replace("%p", "22").partition(" ")[2]
    assert asked == [expected] * 3


# upload and download


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "deep er").mkdir(parents=True)
    (folder / "deep er" / "a: b $(c)").write_bytes(b"\x00binary\xff")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")


@needs_rsync
def test_files_come_back_from_many_nodes_as_they_were(
    fleet: LoopbackFleet, operator: Operator, tree: Path, tmp_path: Path
) -> None:
    for cluster in ("us-central2", "us-east5"):
        fleet.add_head(cluster)
    fleet.add_worker("us-east5", "worker-a")
    there, back = tmp_path / "there", tmp_path / "ba ck"
    chosen = ("--cluster", "us-*", "--nodes", "all")
    done = operator.types("upload", *chosen, "--json", f"{tree}/", str(there))
    rows = json.loads(done.out)
    assert [row["name"] for row in rows] == ["us-central2", "us-east5", "us-east5/worker-a"]
    assert {row["error"] for row in rows} == {None}
    done = operator.types("download", *chosen, "--dry-run", f"{there}/", str(back))
    assert (done.code, back.exists()) == (0, False), done.err
    done = operator.types("download", *chosen, f"{there}/", str(back))
    assert done.code == 0, done.err
    assert "us-east5/worker-a" in done.text
    for name in ("us-central2", "us-east5", "us-east5/worker-a"):
        assert (back / name / "deep er" / "a: b $(c)").read_bytes() == b"\x00binary\xff"
        assert os.access(back / name / "run.sh", os.X_OK)
    done = operator.types("download", *chosen, "--json", f"{there}/", str(back))
    assert {(row["files"], row["bytes"]) for row in json.loads(done.out)} == {(0, 0)}


@needs_rsync
def test_one_node_downloads_to_where_it_was_told(
    fleet: LoopbackFleet, operator: Operator, tree: Path
) -> None:
    fleet.add_head("us-east5")
    words = ("download", "--cluster", "us-east5", f"{tree}/run.sh", "here: run.sh")
    done = operator.types(*words)
    assert done.code == 0, done.err
    assert (fleet.folder / "here: run.sh").read_text() == "#!/bin/sh\n"


@needs_rsync
def test_what_is_missing_on_one_node_is_named_and_the_others_go_on(
    fleet: LoopbackFleet, operator: Operator, tmp_path: Path
) -> None:
    fleet.add_head("us-central2")
    fleet.add_head("us-east5")
    where = f"{fleet.folder}/nodes/rf-us-east5-head-1/host_key.pub"
    done = operator.types("download", "--all", where + "x", str(tmp_path / "back"))
    assert done.code == 2
    assert "No such file or directory" in done.err
    assert list((tmp_path / "back").iterdir()) == []
    done = operator.types("upload", "--all", "nowhere", "x")
    assert (done.code, "there is no nowhere here" in done.err) == (1, True)
