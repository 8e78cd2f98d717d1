"""Heads that are opened by several threads of a process that has not loaded SSH yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

# The first thread is held still in the middle of paramiko, until the second is done or waits for
# it. Nobody listens at port 1.
PROGRAM = """
import sys, threading
from pathlib import Path
from rayfleet.cluster.head import Head, HeadAddress
from rayfleet.errors import Unreachable

halfway, over, errors = threading.Event(), threading.Event(), []
address = HeadAddress(
    cluster="c", alias="c", host="127.0.0.1", port=1, user="nobody", private_key=None,
    known_hosts=Path("/nonexistent"),
)

def hold(event, arguments):
    named = event == "import" and arguments[0] == "paramiko.ecdsakey"
    if named and threading.current_thread().name == "first":
        halfway.set()
        over.wait(2)

def enter():
    try:
        Head.open(address, timeout=5)
    except Unreachable:
        pass
    except BaseException as error:
        errors.append(repr(error))
    over.set()

sys.addaudithook(hold)
first, second = (threading.Thread(target=enter, name=name) for name in ("first", "second"))
first.start()
assert halfway.wait(30)
second.start()
first.join()
second.join()
print(*errors)
"""


def test_threads_that_load_ssh_at_once_all_find_the_whole_of_it() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert finished.stdout.strip() == ""
