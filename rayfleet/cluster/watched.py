"""A command on a node that ends with its own stdin, and with it all that it has started.

Nobody else ends it: sshd lets a command run on when its connection is gone, and the engine lets
run on what a killed ``docker exec`` has started. Either closes the stdin, and that is the sign.
"""

from __future__ import annotations

import shlex

GRACE_SECONDS = 10
"""From SIGTERM to SIGKILL, for a command whose stdin was closed."""

# The command runs in a session of its own, beside a watcher of the real stdin. The watcher hands
# on the bytes that were given and then holds the command's stdin open: where the command is a
# `docker exec -i`, an end there would be the sign for the next watcher, in the container. The
# pipe between the two is made by `: |`, and opened for writing through /proc.
_SCRIPT = """\
exec 3<&0
: | {
  exec 4>/proc/self/fd/0 5<&0
  setsid sh -c "$1" <&5 3<&- 4>&- 5<&- & pid=$!
  {
    head -c "$2" <&3 >&4
    while read -r _; do :; done <&3
    trap '' TERM
    kill -s TERM -- "-$pid"
    for _ in $(seq "$3"); do
      kill -s 0 -- "-$pid" || exit
      sleep 1
    done
    kill -s KILL -- "-$pid"
  } >/dev/null 2>&1 5<&- & watcher=$!
  exec </dev/null 3<&- 4>&- 5<&-
  wait "$pid"; code=$?
  kill "$watcher" 2>/dev/null
  exit "$code"
}"""


def watched(command: str, given: int = 0) -> str:
    """The words, for a shell, that run ``command`` (a line for ``sh``) until their stdin ends.

    The command reads the first ``given`` bytes of that stdin; then its own stays open, and
    nothing comes. When the real one ends, the command and all of its process group get SIGTERM,
    and SIGKILL :data:`GRACE_SECONDS` later. The exit code is the command's.
    """
    return shlex.join(["sh", "-c", _SCRIPT, "sh", command, str(given), str(GRACE_SECONDS)])
