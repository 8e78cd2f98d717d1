"""The watch that the vault's test relies on does see a secret in a command line."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest

from rayfleet.waiting import wait_until
from tests.support.argv_watch import ArgvWatch

pytestmark = pytest.mark.integration


def test_a_secret_in_the_command_line_of_any_process_is_found() -> None:
    secret = f"secret-{uuid.uuid4()}"
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with (
        subprocess.Popen([*program, secret], stdin=subprocess.PIPE) as process,
        ArgvWatch(secret) as watch,
        ArgvWatch(f"other-{uuid.uuid4()}") as other,
    ):
        try:
            wait_until(lambda: watch.found, what="the secret to be seen", timeout=60)
            wait_until(lambda: other.looks, what="the other watch to look", timeout=60)
        finally:
            process.kill()
    assert secret in watch.found[0]
    assert other.found == []
