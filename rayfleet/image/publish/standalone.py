"""Put an image into every region's registry, for whoever has no fleet; and ask them all first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.console import Console
from rayfleet.errors import Unreachable
from rayfleet.fleet.model import Compression
from rayfleet.image.fanout import each_region, failure_lines
from rayfleet.image.oci.refusals import NoRepository
from rayfleet.image.oci.registries import Registries

if TYPE_CHECKING:
    from rayfleet.image.engine import ImageEngine
    from rayfleet.image.oci.credentials import Credentials
    from rayfleet.image.oci.http import Retries
    from rayfleet.image.oci.limits import Limits
    from rayfleet.image.publish.publication import Publication


def publish_image(
    name: str,
    destinations: Mapping[str, str],
    tags: Sequence[str],
    *,
    state: Path,
    login: Callable[[str], Credentials | None],
    engine: ImageEngine | None = None,
    compression: Compression = Compression.GZIP,
    retries: Retries | None = None,
    limits: Limits | None = None,
    console: Console | None = None,
) -> Publication:
    """Publish the engine's image ``name`` under ``tags``; nothing is built or pinned.

    ``destinations`` maps a region to ``host/path/of/repository``; loopback hosts are spoken to
    over plain HTTP. Compressed layers are kept in ``state``. ``login`` gives the credentials
    of a host. The error of a region is in the result.

    Raises:
        ToolFailed: the engine has no such image, or cannot read its layers.
        PrerequisiteMissing: no engine, or a full disk.
    """
    from rayfleet.image.engine import ImageEngine
    from rayfleet.image.layers.blobs import BlobCache
    from rayfleet.image.publish.publisher import Publisher

    with (
        Registries(
            lambda host: lambda _: login(host), retries=retries, limits=limits
        ) as registries,
        BlobCache(state / "blobs") as cache,
    ):
        engine = engine or ImageEngine()
        publisher = Publisher(
            engine=engine,
            cache=cache,
            registries=registries,
            compression=compression,
            console=console or Console(),
        )
        return publisher.publish(engine.look_up(name), destinations, tags, name=name)


def check_registries(
    destinations: Mapping[str, str], registries: Registries, *, next_step: str
) -> None:
    """Return if every registry answers, accepts its credentials and lets them push.

    A repository that is not there yet is for later.

    Raises:
        Unreachable: one or more do not answer.
        ToolFailed: one or more refuse the credentials, or the push.
    """

    def knock(region: str, _: threading.Event) -> bool:
        registries.log_in(destinations[region])
        client = registries.client(destinations[region])
        client.ping()
        with suppress(NoRepository):
            client.try_upload(destinations[region].partition("/")[2])
        return True

    outcomes = each_region(destinations, knock, limit=len(destinations))
    failed = [each.error for each in outcomes if each.error is not None]
    if not failed:
        return
    if len(failed) == len(outcomes) and len({each.text() for each in failed}) == 1:
        raise failed[0]
    kind = Unreachable if any(isinstance(each, Unreachable) for each in failed) else type(failed[0])
    lines = failure_lines(outcomes, done=lambda _: "answers")
    raise kind(
        f"{len(failed)} of {len(outcomes)} registries cannot be published to; nothing was changed",
        why="\n  ".join(["", *lines]),
        next_step=next((each.next_step for each in failed if each.next_step), next_step),
    )
