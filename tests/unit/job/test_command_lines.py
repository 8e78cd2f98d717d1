"""What the tasks make of their arguments, before anything is reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INVOKE = Path(sys.executable).with_name("invoke")
NOWHERE = ("--cluster", "nonesuch")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("jobs.submit", "true", "--memory", "lots"), "--memory lots: not a size"),
        (("jobs.submit", "true", "--resource", "TPU"), "--resource: a key or '=' is missing"),
        (("jobs.submit", "true", "--label", "a=b c"), "--label a: 'b c' selects nothing"),
        (("jobs.submit", "true", "--metadata", "owner=x"), "--metadata owner is recorded by"),
        (("jobs.submit", "true", "--num-gpus", "1", *NOWHERE), "no cluster 'nonesuch'"),
        (("jobs.logs", "s1", "-f", "--timeout", "0"), "--timeout 0: not a number"),
        (("jobs.logs", "s1", "-f", *NOWHERE), "no cluster 'nonesuch'"),
        (("jobs.wait", "s1", *NOWHERE), "no cluster 'nonesuch'"),
        (("jobs.wait", "s1", "--timeout", "soon", *NOWHERE), "--timeout soon: not a number"),
        (("jobs.stop", "s1", "--also", "s2", *NOWHERE), "no cluster 'nonesuch'"),
        (("jobs.stop", "s1"), "no cluster is chosen"),
    ],
)
def test_bad_arguments_are_one_clear_error(
    words: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    finished = subprocess.run(
        [INVOKE, *words],
        cwd=ROOT,
        env=os.environ | {"INVOKE_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 1
    assert expected in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""
