"""Where every test must run (`pytest --no-skips`, as in CI), a skip is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.depth import REASON

ROOT = Path(__file__).parents[2]


def outcome(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """The exit code and the output of pytest for one module, with the tests' own settings."""
    module = folder / "test_one.py"
    module.write_text(f"import pytest\n{text}\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    # What CI gives to the run that this test is a part of is not for the one that it starts.
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, f"--rootdir={folder}", "-c", os.devnull, *options, module],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


ONE = "@pytest.mark.skipif(True, reason={!r})\ndef test_one(): pass"
HIDDEN = {
    "mark": ONE.format("no Chromium"),
    "call": "def test_one(): pytest.skip('no Chromium')",
    "module": "pytest.importorskip('no_chromium')\ndef test_one(): pass",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_skip_fails_where_every_test_must_run(
    tmp_path: Path, text: str, options: tuple[str, ...]
) -> None:
    code, said = outcome(tmp_path, text, "--no-skips", *options)
    assert code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED), said
    assert "must run here" in said
    assert "hromium" in said


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, HIDDEN["mark"])
    assert (code, "1 skipped" in said) == (0, True), said


def test_what_only_the_deep_run_has_may_be_skipped(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, ONE.format(REASON), "--no-skips")
    assert (code, "1 skipped" in said) == (0, True), said


def test_ci_lets_nothing_be_skipped() -> None:
    assert "--no-skips" in (ROOT / ".ci" / "run").read_text()
