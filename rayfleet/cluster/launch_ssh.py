"""The ``ssh`` that Ray's launcher and its rsync find first in their PATH.

Ray connects with StrictHostKeyChecking=no. This one asks rayfleet, which started Ray, for the
host keys of the machine, and runs the real ssh with them: of an option on ssh's command line the
first value counts. It is run by its path, and depends on nothing but the standard library.
"""

from __future__ import annotations

import getopt
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# ssh(1); those before a colon have a value.
OPTIONS = "1246AaB:b:Cc:D:E:e:F:fGgI:i:J:KkL:l:Mm:NnO:o:P:p:Q:qR:S:sTtVvW:w:XxYy"
SOCKET = "keys"
FAILED = 255
"""The exit code of ssh when it could not connect."""
REFUSED = "Host key verification failed"
ANSWER_SECONDS = 300.0
"""How long rayfleet may take to ask the cloud."""


def destination(words: Sequence[str]) -> str:
    """The host in the arguments of ssh; empty where there is none."""
    with suppress(getopt.GetoptError):
        rest = getopt.getopt(list(words), OPTIONS)[1]
        return rest[0].rpartition("@")[2] if rest else ""
    return ""


def checked(known_hosts: str, alias: str, folder: str) -> list[str]:
    """The options that make ssh take the keys of ``alias`` in ``known_hosts``, and no others.

    An empty ``alias`` is the host's own name. Connections are shared in ``folder``: one that
    Ray opened for somebody else was not checked.
    """
    options = {
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": f'"{known_hosts}"',
        "GlobalKnownHostsFile": "none",
        "CheckHostIP": "no",
        "UpdateHostKeys": "no",
        "VerifyHostKeyDNS": "no",
        "NoHostAuthenticationForLocalhost": "no",
        "ControlPath": f"{folder}/%C",
    }
    if alias:
        options["HostKeyAlias"] = alias
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def ask(folder: str, question: dict[str, str]) -> dict[str, str]:
    """What rayfleet answers; ``why`` is there where it has no keys."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(ANSWER_SECONDS)
        try:
            link.connect(f"{folder}/{SOCKET}")
            link.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, str] = json.loads(link.makefile("rb").readline())
        except (OSError, ValueError) as error:
            return {"why": f"rayfleet does not answer: {error}"}
    return answer


def main(program: str, folder: str, *words: str) -> int:
    """Run ``program``, the real ssh, with ``words``; rayfleet answers in ``folder``."""
    host = destination(words)
    if not host:
        return subprocess.run([program, *words], check=False).returncode
    answer = ask(folder, {"host": host})
    if "why" in answer:
        sys.stderr.write(f"{answer['why']}\n")
        return FAILED
    options = checked(answer["known_hosts"], answer["alias"], folder)
    with tempfile.NamedTemporaryFile("r", dir=folder, errors="replace") as log:
        argv = [program, "-E", log.name, *options, *words]
        code = subprocess.run(argv, check=False).returncode
        said = Path(log.name).read_text(errors="replace")
    sys.stderr.write(said)
    if code == FAILED and REFUSED in said:
        ask(folder, {"host": host, "refused": said})
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
