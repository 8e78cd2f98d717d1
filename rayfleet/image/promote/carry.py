"""Hand an image from one repository of a registry to another, and give it tags."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rayfleet.errors import ToolFailed
from rayfleet.image.contents import read_contents
from rayfleet.image.fanout import each_region
from rayfleet.image.oci.client import RegistryClient

MOUNTS_AT_ONCE = 4


def carry(client: RegistryClient, digest: str, *, source: str, destination: str) -> int:
    """Have the repository ``destination`` hold the image ``digest`` of ``source``, children of
    an index first; returns how many blobs were mounted. No bytes of blobs are moved.

    Signatures and other referrers stay behind.

    Raises:
        ToolFailed: the registry refuses, or does not mount a blob that ``destination`` lacks.
        Unreachable: it does not answer.
    """
    mounted: dict[str, bool] = {}
    if source != destination:
        _carry(client, digest, source, destination, mounted)
    return sum(mounted.values())


def _carry(
    client: RegistryClient, digest: str, source: str, destination: str, mounted: dict[str, bool]
) -> None:
    """One manifest and all below it; ``mounted`` says of each blob whether it had to be."""
    if client.manifest_digest(destination, digest) == digest:
        return
    manifest = client.manifest(source, digest)
    contents = read_contents(manifest)
    for image in contents.images:
        _carry(client, image.digest, source, destination, mounted)

    def mount(blob: str, _: threading.Event) -> bool:
        return _mount(client, blob, source=source, destination=destination)

    # Blobs in the place of regions: the same limit, the same way out for an interrupt.
    wanted = [part.digest for part in contents.blobs if part.digest not in mounted]
    for outcome in each_region(wanted, mount, limit=MOUNTS_AT_ONCE):
        if outcome.error is not None:
            raise outcome.error
        mounted[outcome.region] = bool(outcome.value)
    client.put_manifest(destination, digest, manifest.raw, manifest.media_type)
    _check(client, destination, digest, digest)


def point_tags(
    client: RegistryClient, repository: str, tags: Sequence[str], digest: str
) -> tuple[str, ...]:
    """Let ``tags`` name the image ``digest`` that the repository holds, and read them back;
    returns those that did not.

    Raises:
        ToolFailed: the registry refuses, or a tag does not stay where it was put.
        Unreachable: it does not answer.
    """
    wrong = [tag for tag in tags if client.manifest_digest(repository, tag) != digest]
    if not wrong:
        return ()
    manifest = client.manifest(repository, digest)
    for tag in wrong:
        client.put_manifest(repository, tag, manifest.raw, manifest.media_type)
        _check(client, repository, tag, digest)
    return tuple(wrong)


def _mount(client: RegistryClient, blob: str, *, source: str, destination: str) -> bool:
    """True if the blob was mounted, False if it was there."""
    if client.mount_blob(destination, blob, source=source):
        return True
    if client.has_blob(destination, blob):
        return False
    raise ToolFailed(
        f"{client.host} does not hand {blob} from {source} to {destination}",
        why="it refuses to mount blobs of another repository",
        next_step="publish the image there instead: invoke cluster-docker --image FAMILY",
    )


def _check(client: RegistryClient, repository: str, reference: str, digest: str) -> None:
    found = client.manifest_digest(repository, reference)
    if found != digest:
        raise ToolFailed(
            f"{client.host}/{repository}:{reference} is not what was put there",
            why=f"it is {found or 'missing'}, not {digest}",
        )
