"""What many nodes said, and how that ends a run."""

from __future__ import annotations

import pytest

from rayfleet.cluster.execute import Outcome, failures
from rayfleet.cluster.fanout import require_all
from rayfleet.cluster.gathered import as_rows, as_text
from rayfleet.cluster.heads import Target
from rayfleet.errors import PartialFailure, RayfleetError, ToolFailed, Unreachable

LOST = Unreachable("c: cannot reach the head", why="it did not answer in time")


def outcome(name: str, code: int | None = 0, out: bytes = b"", **more: object) -> Outcome:
    target = Target(cluster=name, region="r", node="head", name=name)
    return Outcome(target=target, code=code, stdout=out, **more)  # type: ignore[arg-type]


def shown(*outcomes: Outcome) -> str:
    return b"".join(as_text(outcomes, bytes.upper)).decode()


def test_the_same_output_and_ending_stand_together_in_the_order_of_the_first() -> None:
    said = shown(
        outcome("b", out=b"one\n"), outcome("a", out=b"two"), outcome("c", out=b"one\n"),
        outcome("d", 3, b"one\n"),
    )  # fmt: skip
    assert said == "--- b, c\nONE\n--- a\nTWO\n--- d: exit code 3\nONE\n"


def test_stderr_follows_stdout_and_silence_is_said() -> None:
    assert shown(outcome("a", 1, b"out", stderr=b"err")) == "--- a: exit code 1\nOUT\nERR\n"
    assert (
        shown(outcome("a"), outcome("b", 2)) == "--- a: no output\n--- b: exit code 2, no output\n"
    )


def test_a_node_that_was_not_entered_has_no_output_and_one_cut_off_has_what_came() -> None:
    late = ToolFailed("b: the command did not end within 1 s")
    said = shown(outcome("a", None, error=LOST), outcome("b", None, b"part", error=late))
    assert said == "--- b: cut off\nPART\n"


def test_rows_tell_the_code_or_the_reason() -> None:
    fine, lost = as_rows([outcome("a", 7, b"\xff"), outcome("c", None, error=LOST)])
    assert (fine["code"], fine["error"], fine["stdout"]) == (7, None, "\ufffd")
    assert lost["code"] is None
    assert lost["error"] == "c: cannot reach the head: it did not answer in time"


FAILED = outcome("a", 1)
GONE = outcome("c", None, error=LOST)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([outcome("a")], None),
        ([FAILED], PartialFailure),
        ([GONE], Unreachable),
        ([FAILED, outcome("b")], PartialFailure),
        ([GONE, outcome("b")], PartialFailure),
        ([GONE, FAILED], PartialFailure),
        ([GONE, outcome("d", None, error=LOST)], Unreachable),
    ],
)
def test_the_ending_of_a_run_tells_some_from_none(
    outcomes: list[Outcome], expected: type[RayfleetError] | None
) -> None:
    failed = failures(outcomes)
    if expected is None:
        require_all(failed, total=len(outcomes), what="the command", next_step="")
        return
    with pytest.raises(RayfleetError) as caught:
        require_all(failed, total=len(outcomes), what="the command", next_step="invoke status")
    assert type(caught.value) is expected
