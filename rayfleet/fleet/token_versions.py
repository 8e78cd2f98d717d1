"""Which version of each secret clusters are started with: a file beside the pins of images.

A config names the version of its token. So the workers that a running head makes get the token
that this head has, and a newer version reaches a cluster by a restart, all of its nodes at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from rayfleet.errors import UsageError
from rayfleet.files import write_atomically
from rayfleet.fleet.model import Fleet

LATEST = "latest"
"""Where no version is written: the newest that there is, as Google calls it."""
VERSION = re.compile(r"[0-9]{1,19}")
BANNER = """\
# Written by `invoke auth.init` and `invoke auth.rotate`; do not edit. Which version of each
# token's secret clusters are started with.
"""


def versions_file(fleet: Fleet) -> Path:
    """Where they are written."""
    return fleet.outputs.pins.with_name("tokens.lock.yaml")


def read_versions(fleet: Fleet) -> Mapping[str, str]:
    """The version of each secret by its name; none if there is no such file.

    Raises:
        UsageError: it is not what :func:`write_version` writes.
    """
    path = versions_file(fleet)
    try:
        document = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _broken(path, " ".join(str(error).split())) from error
    if not isinstance(document, dict):
        raise _broken(path, "it is no mapping of secrets to versions")
    for name, version in document.items():
        if not (isinstance(version, str) and VERSION.fullmatch(version)):
            raise _broken(path, f"{name} has the version {version!r}, which is no number in quotes")
    return {str(name): version for name, version in document.items()}


def write_version(fleet: Fleet, secret: str, version: str) -> None:
    """Let clusters be started with ``version`` of ``secret`` from now on.

    Raises:
        PrerequisiteMissing: the file cannot be written.
        UsageError: the file is not what this function writes.
    """
    versions = {**read_versions(fleet), secret: version}
    lines = (f"{json.dumps(name)}: {json.dumps(versions[name])}\n" for name in sorted(versions))
    write_atomically(versions_file(fleet), BANNER + "".join(lines))


def _broken(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is broken", why=why, next_step="bring it back from git")
