"""What only the head itself can tell: its container, its image's own record, its GCS's age."""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from rayfleet.cluster.container import ASK_SECONDS as ENGINE_SECONDS
from rayfleet.cluster.container import image_of, is_running
from rayfleet.errors import ToolFailed

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head

ASK_SECONDS = 30.0
RECORD = "/etc/cluster-image.json"
"""What docker/Dockerfile.cluster writes: tag, commit and the version of Ray that it installed."""

_MARK = "rayfleet-gate"
# Not itself: the brackets keep grep's own command line out. Ray 2.60 and before, v1 and v2.
_MONITOR = "'[/]ray/autoscaler/.*/monitor[.]py'"
# For where Ray runs in a container.
_IN_CONTAINER = """
if {is_running}; then
  inside() {{ timeout {seconds} docker exec -w / {container} "$@"; }}
  echo "{mark} image $({image})"
fi
"""
# One command for everything: each costs a round trip. Lines without the mark are a greeting of
# the login shell.
_SCRIPT = f"""
echo "{_MARK} record $(inside cat {RECORD} 2>/dev/null | tr -d '\\n')"
inside ps -ww -C gcs_server -o etimes=,args= 2>/dev/null | sed 's/^/{_MARK} gcs /'
echo "{_MARK} autoscaler $(inside ps -ww -eo args= 2>/dev/null | grep -c {_MONITOR})"
echo "{_MARK} end"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """``image`` is the reference of Ray's container, empty where Ray runs directly. ``ray`` is
    the version that the image says it has, empty when it says nothing. ``servers`` are the
    running GCS processes: the age in whole seconds, rounded down, and the command line.
    ``autoscaler`` tells whether its process runs."""

    image: str = ""
    ray: str = ""
    servers: tuple[tuple[int, str], ...] = ()
    autoscaler: bool = False

    def age(self, session: str) -> int | None:
        """How long the GCS of Ray's session ``session`` has run, in seconds; None: not found.

        Where no command line names the session, the only GCS is meant.
        """
        named = [age for age, line in self.servers if session and f"={session} " in f"{line} "]
        everything = [age for age, _ in self.servers]
        found = named or everything
        return found[0] if len(found) == 1 else None


def look_inside(head: Head) -> Inside:
    """Ask ``head``, in one round trip.

    Raises:
        Unreachable: it does not answer.
        ToolFailed: its shell did not run the command.
    """
    script = 'inside() { "$@"; }' + _entering(head.address.container) + _SCRIPT
    result = head.run(f"exec sh -c {quote(script)}", timeout=ASK_SECONDS)
    found = parse_inside(result.stdout)
    if found is None:
        raise ToolFailed(
            f"{head.address.cluster}: the head's shell did not run a command",
            why=(result.stderr.strip().splitlines() or [f"exit code {result.code}"])[-1][:300],
        )
    return found


def _entering(container: str) -> str:
    if not container:
        return ""
    return _IN_CONTAINER.format(
        is_running=is_running(container),
        seconds=ENGINE_SECONDS,
        container=quote(container),
        mark=_MARK,
        image=image_of(container),
    )


def parse_inside(text: str) -> Inside | None:
    """Read what the command printed; None when it did not come to its end."""
    found: dict[str, str] = {}
    servers = []
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        if mark != _MARK:
            continue
        found[key] = value.strip()
        age, _, command = found[key].partition(" ")
        if key == "gcs" and age.isdigit():
            servers.append((int(age), command))
    if "end" not in found:
        return None
    return Inside(
        image=found.get("image", ""),
        ray=_ray(found.get("record", "")),
        servers=tuple(servers),
        autoscaler=found.get("autoscaler", "0") not in {"", "0"},
    )


def _ray(text: str) -> str:
    try:
        return str(json.loads(text).get("ray", ""))
    except (ValueError, AttributeError):
        return ""
