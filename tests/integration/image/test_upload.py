"""Blobs on their way to real registries."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.image.interruption import Interrupted
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.connections import BLOCK
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.oci.limits import Limits
from rayfleet.image.oci.patience import Retries
from tests.support.faulty_proxy import FaultyProxy
from tests.support.proxy_logins import Tokens
from tests.support.registry import LocalRegistry
from tests.support.uploads import Count, MemoryBlob, random_blob

pytestmark = pytest.mark.integration

REPOSITORY = "test-project/marin/blobs"


def login(registry: LocalRegistry) -> Credentials:
    return Credentials(username=registry.username, password=registry.password)


def connect(registry: LocalRegistry) -> RegistryClient:
    return RegistryClient(registry.host, login(registry))


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_a_blob_of_any_size_gets_there(
    start_registry: Callable[[str], LocalRegistry], size: int
) -> None:
    blob, count = random_blob(size), Count()
    with connect(start_registry("one")) as registry:
        assert not registry.has_blob(REPOSITORY, blob.digest)
        registry.send_blob(REPOSITORY, blob, on_sent=count)
        assert registry.has_blob(REPOSITORY, blob.digest)
        assert not registry.has_blob("another/repository", blob.digest)
    assert (count.total, count.taken_back) == (size, 0)


def test_one_start_and_one_body_of_known_length_are_sent(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry, blob = start_registry("one"), random_blob(2 * BLOCK)
    with (
        FaultyProxy(registry.host) as proxy,
        RegistryClient(proxy.host, login(registry)) as client,
    ):
        client.send_blob(REPOSITORY, blob)
        client.send_blob(REPOSITORY, random_blob(10, seed=1))
    asked = [(each.request.method, each.status, each.request.size) for each in proxy.exchanges]
    assert asked == [
        ("POST", 401, 0),  # the only one without a login
        ("POST", 202, 0),
        ("PUT", 201, blob.size),
        ("POST", 202, 0),
        ("PUT", 201, 10),
    ]


def test_many_blobs_at_once_share_a_few_connections(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry = start_registry("one")
    blobs = [random_blob(20_000, seed=seed) for seed in range(40)]
    limits, count = Limits(per_registry=3, overall=3), Count()
    with RegistryClient(registry.host, login(registry), limits=limits) as client:

        def send(some: list[MemoryBlob]) -> None:
            for blob in some:
                client.send_blob(REPOSITORY, blob, on_sent=count)

        threads = [threading.Thread(target=send, args=(blobs[start::20],)) for start in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert all(client.has_blob(REPOSITORY, blob.digest) for blob in blobs)
    assert count.total == sum(blob.size for blob in blobs)


def test_two_clients_may_send_the_same_blob_at_once(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry, blob = start_registry("one"), random_blob(3_000_000)
    counts = [Count(), Count()]
    # Each waits in the middle of the blob until the other one is there as well.
    middle = threading.Barrier(2, timeout=60)
    done: Counter[int] = Counter()

    def send(number: int) -> None:
        with connect(registry) as client:
            reached: list[int] = []

            def meet(total: int) -> None:
                if total > blob.size // 2 and not reached:
                    reached.append(total)
                    middle.wait()

            counts[number].on_step = meet
            client.send_blob(REPOSITORY, blob, on_sent=counts[number])
            done[number] += client.has_blob(REPOSITORY, blob.digest)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == {0: 1, 1: 1}
    assert [count.total for count in counts] == [blob.size, blob.size]


def test_a_blob_is_mounted_from_another_repository_or_not_at_all(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry, blob = start_registry("one"), random_blob(1000)
    with FaultyProxy(registry.host) as proxy:
        proxy.logins = Tokens(username=registry.username, password=registry.password)
        with RegistryClient(proxy.host, login(registry)) as client:
            client.send_blob("p/source", blob)
            assert client.mount_blob("p/target", blob.digest, source="p/source")
            assert client.has_blob("p/target", blob.digest)
            assert not client.mount_blob("p/target", random_blob(9).digest, source="p/source")
        tokens = [each.request.target for each in proxy.seen("token")]
        mounting = (
            "scope=repository%3Ap%2Ftarget%3Apull%2Cpush&scope=repository%3Ap%2Fsource%3Apull"
        )
        assert sum(target.endswith(mounting) for target in tokens) == 1
        # What the registry began instead of mounting is cancelled.
        assert [each.status for each in proxy.seen("upload", "DELETE")] == [204]
        refused = [each.request.method for each in proxy.exchanges if each.status == 401]
        assert refused == ["POST"]


def test_a_manifest_is_put_under_tags_and_its_digest(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    config = MemoryBlob(data=b'{"architecture":"amd64","os":"linux","created":"2026-01-01"}')
    kind = "application/vnd.oci.image.manifest.v1+json"
    raw = (
        f'{{"schemaVersion":2,"mediaType":"{kind}","layers":[],"config":{{"mediaType":'
        f'"application/vnd.oci.image.config.v1+json","digest":"{config.digest}",'
        f'"size":{config.size}}}}}'
    ).encode()
    with connect(start_registry("one")) as registry:
        with pytest.raises(ToolFailed, match="MANIFEST_BLOB_UNKNOWN"):
            registry.put_manifest(REPOSITORY, "one", raw, kind)
        registry.send_blob(REPOSITORY, config)
        digest = registry.put_manifest(REPOSITORY, "one", raw, kind)
        assert registry.put_manifest(REPOSITORY, digest, raw, kind) == digest
        assert registry.manifest_digest(REPOSITORY, "one") == digest
        assert registry.manifest(REPOSITORY, digest).raw == raw
        found = registry.config(REPOSITORY, config.digest)
        assert (found.architecture, found.os) == ("amd64", "linux")


def test_an_interrupt_ends_an_upload_between_two_blocks(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    stop, blob = threading.Event(), random_blob(20 * BLOCK)
    count = Count(on_step=lambda total: stop.set() if total > 2 * BLOCK else None)
    with connect(start_registry("one")) as registry:
        with pytest.raises(Interrupted):
            registry.send_blob(REPOSITORY, blob, on_sent=count, stop=stop)
        assert count.total == 3 * BLOCK
        with pytest.raises(Interrupted):
            registry.send_blob(REPOSITORY, blob, stop=stop)
        registry.send_blob(REPOSITORY, blob)
        assert registry.has_blob(REPOSITORY, blob.digest)


def test_a_blob_that_is_not_what_it_says_is_never_taken(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    class Damaged(MemoryBlob):
        @property
        def digest(self) -> str:
            return f"sha256:{'0' * 64}"

    one = start_registry("one")
    quick = Retries(attempts=3, first_wait=0.01)
    with RegistryClient(one.host, login(one), retries=quick) as registry:
        with pytest.raises(ToolFailed, match="it is shorter than it should be"):
            registry.send_blob(REPOSITORY, MemoryBlob(data=b"x" * 100, claimed=101))
        with pytest.raises(ToolFailed, match="DIGEST_INVALID"):
            registry.send_blob(REPOSITORY, Damaged(data=b"x"))
        assert not registry.has_blob(REPOSITORY, Damaged(data=b"x").digest)
