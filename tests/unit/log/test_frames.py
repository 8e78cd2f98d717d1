"""What the program on a node writes, taken apart however it is cut into chunks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.errors import ToolFailed
from rayfleet.log.frames import (
    BODY_BYTES,
    GREETING_BYTES,
    HEADER_BYTES,
    Beat,
    CaughtUp,
    Data,
    Done,
    Finished,
    Frame,
    FrameReader,
    Hello,
    Opened,
    Refused,
    Said,
)
from rayfleet.log.remote.frames import MAGIC

FRAMES: tuple[tuple[dict[str, object], bytes, Frame], ...] = (
    (
        {"kind": "hello", "utc_offset": 3600, "session": "session_1", "host": "vm"},
        b"",
        Hello(utc_offset=3600, session="session_1", host="vm"),
    ),
    (
        {
            "kind": "file",
            "id": 1,
            "path": "/x/monitor.log",
            "name": "monitor.log",
            "role": "autoscaler",
            "session": "session_1",
            "device": 5,
            "inode": 7,
            "offset": 4,
            "mark": [4, 55, 4, 66],
        },
        b"",
        Opened(
            id=1,
            path="/x/monitor.log",
            name="monitor.log",
            role="autoscaler",
            session="session_1",
            device=5,
            inode=7,
            offset=4,
            mark=(4, 55, 4, 66),
        ),
    ),
    (
        {"kind": "data", "id": 1, "end": 12, "mark": [12, 99], "cut": False},
        b"one\n{}\n\0\xff\r\n",
        Data(id=1, end=12, mark=(12, 99), cut=False, lines=b"one\n{}\n\0\xff\r\n"),
    ),
    (
        {"kind": "data", "id": 1, "end": 20, "mark": [20, 9], "cut": False},
        b"",
        Data(id=1, end=20, mark=(20, 9), cut=False, lines=b""),
    ),
    ({"kind": "beat"}, b"", Beat()),
    ({"kind": "caught-up"}, b"", CaughtUp()),
    ({"kind": "say", "text": "a \x1b[2J b\nc"}, b"", Said(text="a \\x1b[2J b c")),
    ({"kind": "done", "id": 1}, b"", Done(id=1)),
    (
        {"kind": "error", "reason": "no-ray", "text": "why"},
        b"",
        Refused(reason="no-ray", text="why"),
    ),
    ({"kind": "end"}, b"", Finished()),
)


def written(fields: dict[str, object], body: bytes = b"") -> bytes:
    return json.dumps({**fields, "size": len(body)}).encode() + b"\n" + body


WHOLE = b"Welcome!\n" + MAGIC + b"".join(written(fields, body) for fields, body, _ in FRAMES)


@given(st.lists(st.integers(0, len(WHOLE))))
def test_every_frame_is_read_however_the_bytes_arrive(cuts: list[int]) -> None:
    reader = FrameReader("us-east5")
    edges = [0, *sorted(cuts), len(WHOLE)]
    found = [frame for begin, end in pairwise(edges) for frame in reader.feed(WHOLE[begin:end])]
    assert found == [frame for _, _, frame in FRAMES]


def read(written: bytes) -> list[Frame]:
    return list(FrameReader("us-east5").feed(MAGIC + written))


@pytest.mark.parametrize(
    "nonsense",
    [
        b"no json\n",
        b"[]\n",
        b'{"kind": "unknown", "size": 0}\n',
        b'{"kind": "beat"}\n',
        b'{"kind": "data", "size": 0}\n',
        b'{"kind": "beat", "size": -1}\n',
        written(FRAMES[1][0])
        + written({"kind": "data", "id": 1, "end": 3, "mark": [1, 2], "cut": False}, b"cut"),
        written({"kind": "done", "id": 9}),
        written({"kind": "data", "id": 9, "end": 3, "mark": [], "cut": False}, b"of no file\n"),
        json.dumps({"kind": "data", "size": BODY_BYTES + 1}).encode() + b"\n",
        b"x" * HEADER_BYTES,
    ],
)
def test_what_is_no_frame_is_an_error(nonsense: bytes) -> None:
    with pytest.raises(ToolFailed, match="us-east5: what came is not of the program"):
        read(nonsense)


def test_a_greeting_without_end_is_an_error() -> None:
    reader = FrameReader("us-east5")
    assert list(reader.feed(b"x" * GREETING_BYTES)) == []
    with pytest.raises(ToolFailed, match="login shell says too much"):
        list(reader.feed(b"x"))


def test_a_name_that_is_no_text_can_be_shown() -> None:
    opened = dict(FRAMES[1][0]) | {"name": "a\udcff\x1b[0K"}
    frame = read(written(opened))[0]
    assert isinstance(frame, Opened)
    assert frame.name == "a\\xff\\x1b[0K"
