"""Images of the fleet that a text names: a config, a record of a start, what Docker says. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from rayfleet.fleet.model import Fleet
from rayfleet.registry.uses import Kind, Use

_NAME = r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
_TAG = r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
_DIGEST = r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
_BARE = re.compile(r"sha256:[0-9a-f]{64}")


def images_in(fleet: Fleet, text: str, *, by: str, kind: Kind, region: str = "") -> Iterator[Use]:
    """Every image of the fleet's repositories that ``text`` names.

    The registry says in which region it is needed; one that the fleet does not know (that of a
    sandbox which is gone) means ``region``. A reference without tag and digest means ``latest``.
    """
    regions = {host: name for name, host in fleet.registries.hosts.items()}
    for repository in sorted({image.repository for image in fleet.images.values()}):
        for found in _pattern(fleet.project, repository).finditer(text):
            digest = found["digest"] or ""
            yield Use(
                by=by,
                kind=kind,
                digest=digest,
                tag="" if digest else found["tag"] or "latest",
                region=regions.get(found["host"], region),
                repository=repository,
                package=found["name"],
            )


def digests_in(text: str, *, by: str, kind: Kind, region: str = "") -> Iterator[Use]:
    """Every digest in ``text``, of whatever image: for texts that name them alone."""
    for digest in dict.fromkeys(_BARE.findall(text)):
        yield Use(by=by, kind=kind, digest=digest, region=region)


@cache
def _pattern(project: str, repository: str) -> re.Pattern[str]:
    host = r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?)"
    place = f"/{re.escape(project)}/{re.escape(repository)}/"
    return re.compile(host + place + _NAME + _TAG + _DIGEST)
