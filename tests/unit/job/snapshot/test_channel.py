"""The reader's answer on its way: whole and checked, or an error that tells which."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from rayfleet.cluster.channel import ConnectionLost
from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.job.snapshot.channel import command
from rayfleet.job.snapshot.locate import BOOT, MARK
from rayfleet.job.snapshot.reader import emit
from rayfleet.job.snapshot.source import HeadSource


@dataclass
class CannedStream:
    """The output of a command: chunks, then its exit code, or a lost connection."""

    chunks: Sequence[bytes]
    code: int | None = 0
    stderr: str = ""
    cut: bool = False
    closed: bool = False

    def __iter__(self) -> Iterator[bytes]:
        """Give the chunks; none of them is empty."""
        yield from filter(None, self.chunks)
        if self.cut:
            raise ConnectionLost("us-east5: the connection was lost")

    def close(self) -> None:
        """Remember that the command was ended."""
        self.closed = True


@dataclass
class CannedHead:
    """A head whose commands have canned outputs, in turn."""

    streams: list[CannedStream]
    commands: list[str] = field(default_factory=list)
    address: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(cluster="us-east5", container="")
    )

    def stream(self, command: str) -> CannedStream:
        """Start one."""
        self.commands.append(command)
        return self.streams[len(self.commands) - 1]


def source(*streams: CannedStream) -> HeadSource:
    return HeadSource(CannedHead(list(streams)))  # type: ignore[arg-type]


def said(*frames: tuple[str, bytes, dict[str, str]]) -> bytes:
    """What the reader itself writes for these frames."""
    out = io.BytesIO()
    for kind, body, fields in frames:
        emit(out, kind, body, **fields)
    return MARK + out.getvalue()


def fails(*streams: CannedStream, folder: Path) -> RayfleetError:
    """The one error of a look and of a fetch."""
    with pytest.raises(RayfleetError) as looked:
        source(*streams).look()
    with pytest.raises(RayfleetError) as fetched:
        source(*streams).fetch(["gcs://a.zip"], folder)
    assert type(looked.value) is type(fetched.value)
    assert looked.value.text() == fetched.value.text()
    assert all(stream.closed for stream in streams)
    return looked.value


PACKAGE = ("package", b"PK bytes", {"uri": "gcs://a.zip"})
END = ("end", b"", {})


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_packages_come_out_whole_however_the_bytes_are_cut(size: int, tmp_path: Path) -> None:
    bodies = {f"gcs://{n}.whl": bytes(range(256)) * n for n in range(4)}
    absent = ("absent", b"", {"uri": "gcs://gone.zip"})
    frames = [("package", body, {"uri": uri}) for uri, body in bodies.items()]
    raw = b"Welcome to the head!\n" + said(*frames, absent, END)
    chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
    found = source(CannedStream(chunks)).fetch([*bodies, "gcs://gone.zip"], tmp_path)
    assert {uri: path.read_bytes() for uri, path in found.items()} == bodies
    assert all(path.parent == tmp_path for path in found.values())


def test_a_package_that_two_jobs_share_is_asked_for_once(tmp_path: Path) -> None:
    head = CannedHead([CannedStream([said(PACKAGE, END)])])
    twice = ["gcs://a.zip", "gcs://a.zip"]
    found = HeadSource(head).fetch(twice, tmp_path)  # type: ignore[arg-type]
    assert list(found) == ["gcs://a.zip"]
    assert head.commands[0].count("gcs://a.zip") == 1


def test_nothing_to_fetch_asks_nobody(tmp_path: Path) -> None:
    assert source().fetch([], tmp_path) == {}


def test_a_lost_connection_is_no_partial_success(tmp_path: Path) -> None:
    for cut in (0, len(MARK), len(MARK) + 20):
        stream = CannedStream([said(PACKAGE, END)[:cut]], cut=True)
        assert isinstance(fails(stream, folder=tmp_path), Unreachable)
    almost = CannedStream([said(PACKAGE, END)[:-3]], cut=True)
    with pytest.raises(Unreachable):
        source(almost).fetch(["gcs://a.zip"], tmp_path)


def test_an_answer_without_its_end_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="ended with exit code 137"):
        source(CannedStream([said(PACKAGE)], code=137)).fetch(["gcs://a.zip"], tmp_path)


def test_bytes_that_changed_on_the_way_are_found(tmp_path: Path) -> None:
    raw = said(PACKAGE, END).replace(b"PK bytes", b"PK bits!")
    with pytest.raises(ToolFailed, match="not what it sent"):
        source(CannedStream([raw])).fetch(["gcs://a.zip"], tmp_path)


def test_a_package_that_the_head_did_not_speak_of_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"did not answer for gcs://b\.zip"):
        source(CannedStream([said(PACKAGE, END)])).fetch(["gcs://a.zip", "gcs://b.zip"], tmp_path)


def test_a_package_that_nobody_asked_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="not the reader's"):
        source(CannedStream([said(PACKAGE, END)])).fetch(["gcs://b.zip"], tmp_path)


def test_an_answer_without_an_account_is_not_no_jobs() -> None:
    with pytest.raises(ToolFailed, match="no account"):
        source(CannedStream([said(END)])).look()


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("no-ray", Unreachable),
        ("silent", Unreachable),
        ("several", ToolFailed),
        ("refused", ToolFailed),
    ],
)
def test_what_the_reader_tells_is_one_error(
    reason: str, kind: type[RayfleetError], tmp_path: Path
) -> None:
    told = CannedStream([said(("error", b"", {"reason": reason, "text": "so it is"}))], code=3)
    error = fails(told, folder=tmp_path)
    assert type(error) is kind
    assert "us-east5: could not read the jobs" in str(error)
    assert "so it is" in str(error)


def test_a_gcs_that_does_not_answer_is_unreachable(tmp_path: Path) -> None:
    error = fails(CannedStream([], code=142), folder=tmp_path)
    assert type(error) is Unreachable
    assert "said nothing for 60 s" in str(error)


def test_a_head_without_python_says_so_with_the_last_line_of_its_shell(tmp_path: Path) -> None:
    shell = CannedStream([], code=127, stderr="x\nsh: 1: exec: python3: not found")
    error = fails(shell, folder=tmp_path)
    assert type(error) is ToolFailed
    assert "exit code 127: sh: 1: exec: python3: not found" in str(error)


@pytest.mark.parametrize("junk", [b"{}\n", b"hello\n", b"x" * 100_000])
def test_what_is_no_answer_is_not_taken_for_one(junk: bytes, tmp_path: Path) -> None:
    assert type(fails(CannedStream([MARK + junk]), folder=tmp_path)) is ToolFailed


def test_a_shell_that_never_stops_greeting_is_ended(tmp_path: Path) -> None:
    error = fails(CannedStream([b"hi\n" * 50_000] * 3), folder=tmp_path)
    assert "says too much" in str(error)


def test_the_command_fits_into_one_argument_and_survives_any_name() -> None:
    # Linux takes 128 KiB per argument, and sshd hands the whole command on as one.
    uris = [f"gcs://_ray_pkg_{n:032x}.zip" for n in range(200)]
    assert (
        len(shlex.quote(command(["fetch", *uris], container="ray", port=8265, limit=60))) < 100_000
    )
    awkward = 'gcs://it\'s "$HOME" `x`.whl'
    script = command(["fetch", awkward], container="", port=1, limit=30).replace(
        shlex.quote(BOOT), "SHOW", 1
    )
    shown = subprocess.run(
        ["sh", "-c", script.replace("python3 -c SHOW", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert shown.stdout.splitlines() == ["1", "30", "fetch", awkward]


def test_a_machine_without_ray_answers_in_a_frame() -> None:
    """The whole way through a shell and two programs, on a /proc without any Ray of port 1."""
    ran = subprocess.run(
        ["sh", "-c", command(["look"], container="", port=1, limit=30)],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
    )
    greeting, _, answer = ran.stdout.partition(MARK)
    assert (ran.returncode, greeting, ran.stderr) == (3, b"", b"")
    assert json.loads(answer)["reason"] == "no-ray"


def test_a_frame_carries_the_digest_of_its_bytes() -> None:
    header = json.loads(said(PACKAGE).removeprefix(MARK).partition(b"\n")[0])
    assert header["sha256"] == sha256(b"PK bytes").hexdigest()
