"""Where Ray runs on a node: in the container that the cluster's config names, where it names one.

The pieces here are lines for a shell (POSIX sh). ``timeout`` because a Docker engine that hangs
must not hang who asks.
"""

from __future__ import annotations

import shlex

from rayfleet.cluster.watched import watched

ASK_SECONDS = 20
"""How long a Docker engine may take to answer."""

# A login shell that is interactive reads what operators have set up for themselves, and `ray exec`
# reads it so. Without a terminal bash complains of that; and what start-up files print is not
# what was asked for. The line itself is for a new shell, because an interactive one ignores
# SIGTERM and goes on with the next command.
_LOGIN = (
    '[ ! -r ~/.bashrc ] || . ~/.bashrc; exec >&8 2>&9 8>&- 9>&-; unset BASH_ENV; exec bash -c "$1"'
)

# sshd ends the client of a login that was cut off. What the engine has started for it is found by
# a variable of its own.
_CUT_OFF = """\
session=$(cat /proc/sys/kernel/random/uuid)
end() {
  docker exec "$1" sh -c 'for each in /proc/[0-9]*; do
    grep -qsz "^RAYFLEET_SESSION=$1$" "$each/environ" && kill -s HUP "${each#/proc/}"
  done' sh "$session"
  exit 129
}
trap 'end "$1"' HUP TERM
docker exec -it -e "RAYFLEET_SESSION=$session" "$@"
"""


def is_running(container: str) -> str:
    """A test: true where ``container`` runs."""
    return (
        f"[ \"$(timeout {ASK_SECONDS} docker inspect --format '{{{{.State.Running}}}}' "
        f'{shlex.quote(container)} 2>/dev/null)" = true ]'
    )


def image_of(container: str) -> str:
    """A command that prints the reference of the image of ``container``."""
    return f"docker inspect --format '{{{{.Config.Image}}}}' {shlex.quote(container)}"


def where_ray_runs(container: str, command: str, *, given: int = 0) -> str:
    """``command``, a line for ``sh``, as a line that runs it in ``container``; where the node has
    no such container, on the node itself.

    An engine lets run on what a killed ``docker exec`` has started. So the command ends with its
    stdin there, of which it reads the first ``given`` bytes (:func:`rayfleet.cluster.watched`).
    """
    if not container:
        return command
    entering = shlex.join(["docker", "exec", "-i", container])
    return (
        f"if {is_running(container)}; then set -- {entering}; else set --; fi\n"
        f'exec "$@" {watched(command, given)}'
    )


def entered(container: str, command: str = "", *, terminal: bool) -> str:
    """Like :func:`where_ray_runs`, for somebody at the other end: the command has their stdin,
    with ``terminal`` their terminal, and is a login shell when empty."""
    words = shlex.join(["sh", "-c", command] if command else ["bash", "--login"])
    if not container:
        return f"exec {words}"
    start = ["sh", "-c", _CUT_OFF, "sh"] if terminal else ["docker", "exec", "-i"]
    inside = shlex.join([*start, container])
    return f"if {is_running(container)}; then exec {inside} {words}; fi; exec {words}"


def as_operator(line: str) -> str:
    """``line``, for bash, as a line for ``sh`` that runs it with the environment of a login, as
    ``ray exec`` does: with that, ``ray`` is found."""
    login = shlex.join(["bash", "--login", "-i", "-c", _LOGIN, "bash", line])
    return f"exec {login} 8>&1 9>&2 >/dev/null 2>&1"
