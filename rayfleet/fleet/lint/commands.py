"""Shell commands that do something else than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rayfleet.fleet.lint.config import ROLES, Config
from rayfleet.fleet.lint.finding import Finding

_PARTS = re.compile(r"&&|\|\||[;\n|]")
# At the end of a command, what changes a shell that ends with it.
_CHANGES_SHELL = re.compile(
    r"(?:(?:conda|mamba|micromamba|pyenv)\s+activate\b.*"
    r"|(?:source|\.)\s+\S*activate(?:\s+\S+)?"
    r"|export\s+[A-Za-z_]\w*=.*"
    r"|cd(?:\s+\S+)?)"
)
_OPEN = re.compile(
    r"--dashboard-host(?:=|\s+)(['\"]?)(?:0\.0\.0\.0|\[?::0?\]?|\*|)\1(?=\s|$|[;&|])"
)
_RAY_START = re.compile(r"\bray\s+start\b")
# Ray 2.60 has no such command or option.
_GONE: Mapping[str, str] = {
    "rsync_up": "rsync-up",
    "rsync_down": "rsync-down",
    "get_head_ip": "get-head-ip",
    "get_worker_ips": "get-worker-ips",
    "teardown": "down",
}
_GONE_COMMAND = re.compile(rf"\bray\s+({'|'.join(_GONE)})\b")
_GONE_OPTION = re.compile(r"--redis-(?:port|address)\b")
_STOPS = re.compile(r"\bray\s+(?:exec|submit)\b[^;&|]{0,500}\s--stop\b")
_UNPINNED = re.compile(
    r"\bpip3?\s+install\b[^;&|]{0,500}?\s['\"]?ray(?:\[[\w,-]*\])?['\"]?(?=\s|$|[;&|])"
)


def check_lost_changes(config: Config) -> Iterator[Finding]:
    """Every command of a list has a shell of its own."""
    for place, text in config.commands():
        last = _PARTS.split(text.strip())[-1].strip()
        if _CHANGES_SHELL.fullmatch(last):
            what = "every command has a shell of its own, so this is lost with it; join it to the"
            what += " command that needs it with &&, or write it into ~/.bashrc"
            yield config.warning("lost-with-its-shell", place, what)


def check_dashboard(config: Config) -> Iterator[Finding]:
    """Whoever reaches the dashboard runs what he likes on the cluster."""
    for place, text in config.commands("head_start_ray_commands"):
        if _RAY_START.search(text) and _OPEN.search(text):
            what = "the dashboard would be open to the network, and runs anybody's jobs; write"
            what += " --dashboard-host=127.0.0.1, which ray dashboard still reaches"
            yield config.warning("dashboard-open", place, what)


def check_start_commands(config: Config) -> Iterator[Finding]:
    """Ray's own start commands set no mode of authentication, and often open the dashboard."""
    if not config.launched:
        return
    for role in ROLES:
        key = f"{role}_start_ray_commands"
        if key not in config.document.value:
            usual = " ".join(map(str, _list(config.defaults.get(key))))
            opens = "open the dashboard and " if _OPEN.search(usual) else ""
            text = f"missing, so Ray's own {opens}set no RAY_AUTH_MODE; write them"
            yield config.warning("start-commands-missing", (key,), text)
        elif not config.get(key):
            text = "empty, so Ray is not started there; write ray start …"
            yield config.warning("start-commands-missing", (key,), text)


def check_autoscaler(config: Config) -> Iterator[Finding]:
    """Without its config the head never asks for workers."""
    texts = [text for _, text in config.commands("head_start_ray_commands")]
    starts = [text for text in texts if _RAY_START.search(text)]
    if config.launched and starts and not any("--autoscaling-config" in text for text in starts):
        what = "no --autoscaling-config=~/ray_bootstrap_config.yaml, so the head makes no workers"
        yield config.warning("no-autoscaling-config", ("head_start_ray_commands",), what)


def check_gone(config: Config) -> Iterator[Finding]:
    """Commands and options that Ray 2.60 has no more."""
    for place, text in config.commands():
        for name in _GONE_COMMAND.findall(text):
            what = f"Ray 2.60 has no command {name}; write ray {_GONE[name]}"
            yield config.warning("gone-from-ray", place, what)
        if _GONE_OPTION.search(text) and _RAY_START.search(text):
            what = "Ray 2.60 has no --redis-port and --redis-address; write --port and --address"
            yield config.warning("gone-from-ray", place, what)
        if _STOPS.search(text):
            what = "--stop runs a command that Ray 2.60 lacks, and leaves the workers running;"
            yield config.warning("gone-from-ray", place, f"{what} use ray down afterwards")


def check_ray_version(config: Config) -> Iterator[Finding]:
    """Head and workers of different days must not get different versions of Ray."""
    for place, text in config.commands():
        if _UNPINNED.search(text):
            what = "installs whatever Ray is newest that day, on each machine; write ray==2.60.0"
            yield config.warning("ray-not-pinned", place, what)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
