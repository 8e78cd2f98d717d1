"""Uploads to a registry that misbehaves: what is begun again, what is not, what is said."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import BinaryIO

import pytest

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.connections import BLOCK
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.oci.patience import Retries
from tests.support.scripted_http import Answer, Asked, ScriptedServer, scripted_server
from tests.support.uploads import (
    CREATED,
    NOT_THERE,
    Count,
    MemoryBlob,
    begun,
    random_blob,
    uploading,
)

pytestmark = pytest.mark.integration

LOGIN = Credentials(username="me", password="hunter2-secret")
QUICK = Retries(attempts=3, first_wait=0.01, longest_wait=0.02, read_timeout=30)
HASTY = Retries(attempts=2, first_wait=0.01, read_timeout=1.0)
# More than the buffers of a connection hold, so that who does not read stops the sender.
BIG = random_blob(24 << 20)
SMALL = random_blob(5000)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def refuse(status: int, code: str = "", message: str = "", **how: object) -> Answer:
    body = f'{{"errors":[{{"code":"{code}","message":"{message}"}}]}}'.encode()
    return Answer(status=status, body=body, **how)  # type: ignore[arg-type]


def send(server: ScriptedServer, blob: MemoryBlob = SMALL, *, retries: Retries = QUICK) -> Count:
    """Send a blob; the number of bytes that were counted."""
    count = Count()
    with RegistryClient(server.host, LOGIN, retries=retries) as registry:
        registry.send_blob("p/r", blob, on_sent=count)
    return count


def fail(
    server: ScriptedServer, blob: MemoryBlob = SMALL, *, retries: Retries = QUICK
) -> RayfleetError:
    """Send a blob in vain; the error, without a secret."""
    with pytest.raises(RayfleetError) as failure:
        send(server, blob, retries=retries)
    for text in (failure.value.text(), repr(failure.value)):
        assert "secret" not in text
        assert "Basic bWU" not in text
    assert failure.value.__cause__ is None
    return failure.value


@pytest.mark.parametrize(
    "fault",
    [
        Answer(how="cut"),
        Answer(how="cut", read=0),
        Answer(how="cut", read=BIG.size // 2),
        Answer(status=201, body=b"x" * 100, how="cut short"),
        *(Answer(status=status) for status in (408, 429, 500, 502, 503, 504)),
        refuse(404, "BLOB_UPLOAD_UNKNOWN"),
        refuse(404),
        refuse(400, "DIGEST_INVALID"),
        refuse(400, "BLOB_UPLOAD_INVALID"),
        refuse(503, read=0, how="close"),
    ],
)
def test_what_may_pass_is_begun_again(server: ScriptedServer, fault: Answer) -> None:
    server.respond = uploading(fault, fault, CREATED)
    count = send(server, BIG)
    assert count.total == BIG.size
    assert [each.method for each in server.asked] == [
        "POST", "PUT", "HEAD", "POST", "PUT", "HEAD", "POST", "PUT",
    ]  # fmt: skip
    assert server.asked[-1].received == BIG.size


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuse(400, "NAME_INVALID", "bad name"), "NAME_INVALID: bad name"),
        (refuse(400, "MANIFEST_INVALID", "tag is immutable"), "tag is immutable"),
        (refuse(403, "DENIED", "no right to write"), "does not let anonymous users take blob"),
        (refuse(405, "UNSUPPORTED", "read-only"), "UNSUPPORTED: read-only"),
        (refuse(413), "too large"),
        (refuse(416), "HTTP 416"),
        (refuse(501), "HTTP 501"),
    ],
)
def test_what_will_not_pass_fails_at_once(
    server: ScriptedServer, fault: Answer, words: str
) -> None:
    server.respond = uploading(fault)
    assert words in fail(server).text()
    started, sent = server.sent()
    assert started == "POST /v2/p/r/blobs/uploads/"
    assert sent.startswith("PUT /")
    assert "digest=sha256" in sent


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (refuse(500, "UNKNOWN", "no space left on device"), Unreachable, "no space left on device"),
        (refuse(429, "TOOMANYREQUESTS", "slow down"), ToolFailed, "slow down"),
        (refuse(400, "DIGEST_INVALID", "not it"), ToolFailed, "DIGEST_INVALID: not it"),
        (Answer(how="cut"), Unreachable, "does not answer"),
    ],
)
def test_what_does_not_pass_in_the_end_is_told_in_the_registrys_words(
    server: ScriptedServer, fault: Answer, kind: type[RayfleetError], words: str
) -> None:
    server.respond = uploading(fault)
    error = fail(server)
    assert isinstance(error, kind)
    assert words in error.text()
    assert server.host in error.what
    assert sum(each.method == "PUT" for each in server.asked) == QUICK.attempts


def test_a_blob_that_got_there_before_the_cut_is_not_sent_again(server: ScriptedServer) -> None:
    server.respond = uploading(Answer(how="cut"), there=Answer())
    count = send(server, BIG)
    assert (count.total, count.taken_back) == (BIG.size, 0)
    assert [each.method for each in server.asked] == ["POST", "PUT", "HEAD"]


def test_a_blob_that_somebody_else_sent_meanwhile_is_not_counted(server: ScriptedServer) -> None:
    server.respond = uploading(Answer(how="cut", read=1000), there=Answer())
    assert send(server, BIG).total == 0


@pytest.mark.parametrize("status", [401, 403, 413, 503])
@pytest.mark.parametrize("how", ["keep", "close"])
def test_an_answer_before_the_end_of_the_body_counts(
    server: ScriptedServer, status: int, how: str
) -> None:
    early = refuse(status, "EARLY", "no need for more", read=100_000, how=how)
    server.respond = uploading(early)
    assert "EARLY: no need for more" in fail(server, BIG).text()
    sent = [each for each in server.asked if each.method == "PUT"]
    assert all(each.received == 100_000 for each in sent)


def test_a_connection_with_half_a_body_on_it_is_not_used_again(server: ScriptedServer) -> None:
    server.respond = uploading(Answer(status=503, read=100_000), CREATED)
    send(server, BIG)
    first, second = (each for each in server.asked if each.method == "PUT")
    assert first.connection != second.connection
    assert second.received == BIG.size


def test_connections_are_kept_otherwise(server: ScriptedServer) -> None:
    server.respond = uploading(CREATED)
    with RegistryClient(server.host, LOGIN) as registry:
        for _ in range(5):
            registry.send_blob("p/r", SMALL)
            assert not registry.has_blob("p/r", SMALL.digest)
    assert len({each.connection for each in server.asked}) == 1


@pytest.mark.parametrize(
    "stall", [Answer(how="stall", read=100_000), Answer(how="stall")], ids=["body", "answer"]
)
def test_a_stalled_upload_is_given_up_and_begun_again(
    server: ScriptedServer, stall: Answer
) -> None:
    server.respond = uploading(stall, CREATED)
    # The answer to a big blob may take longer, so this one is small where it is waited for.
    blob = BIG if stall.read else SMALL
    assert send(server, blob, retries=HASTY).total == blob.size
    server.respond = uploading(stall)
    error = fail(server, blob, retries=HASTY)
    assert isinstance(error, Unreachable)
    assert "timed out" in error.text()


def test_retry_after_is_honoured_in_both_its_forms_but_not_without_end(
    server: ScriptedServer,
) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(days=2), usegmt=True)
    server.respond = uploading(
        *(Answer(status=429, headers={"Retry-After": each}) for each in ("86400", date, "0")),
        CREATED,
    )
    patient = Retries(attempts=4, first_wait=0, longest_retry_after=0.05)
    assert send(server, retries=patient).total == SMALL.size


def test_a_start_that_fails_is_tried_again_by_itself(server: ScriptedServer) -> None:
    server.script += [Answer(how="cut"), Answer(status=503), begun(), CREATED]
    assert send(server).total == SMALL.size
    assert [each.method for each in server.asked] == ["POST", "POST", "POST", "PUT"]


def test_a_repository_that_is_not_there_leads_to_the_task_that_makes_it(
    server: ScriptedServer,
) -> None:
    server.script.append(refuse(404, "NAME_UNKNOWN", "repository not found"))
    error = fail(server)
    assert "no repository for p/r" in error.what
    assert "invoke cluster-docker" in error.next_step
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/elsewhere/1", "/elsewhere/1?digest="),
        ("/elsewhere/1?a=b%2Bc&_state=x==", "/elsewhere/1?a=b%2Bc&_state=x==&digest="),
        ("http://{host}/elsewhere/1?a=b", "/elsewhere/1?a=b&digest="),
        ("https://{host}/elsewhere/1", "/elsewhere/1?digest="),
        ("1?a=b", "/v2/p/r/blobs/uploads/1?a=b&digest="),
        ("?a=b", "/v2/p/r/blobs/uploads/?a=b&digest="),
    ],
)
def test_the_location_of_an_upload_is_taken_as_it_is(
    server: ScriptedServer, location: str, path: str
) -> None:
    server.script += [begun(location.format(host=server.host)), CREATED]
    send(server)
    (put,) = (each for each in server.asked if each.method == "PUT")
    assert put.path == path + SMALL.digest.replace(":", "%3A")
    assert put.body == SMALL.data
    lower = {name.lower(): value for name, value in put.headers.items()}
    assert lower["content-length"] == str(SMALL.size)
    assert lower.keys().isdisjoint({"transfer-encoding", "content-range", "expect"})


@pytest.mark.parametrize("location", ["", "ftp://x/secret", "http://[secret", "http://a b/secret"])
def test_a_location_that_is_none_is_an_error(server: ScriptedServer, location: str) -> None:
    server.script.append(begun(location))
    assert server.host in fail(server).text()


@pytest.mark.parametrize("status", [307, 308])
def test_an_upload_goes_where_the_registry_sends_it_without_the_login(
    server: ScriptedServer, status: int
) -> None:
    challenge = Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    with scripted_server() as store:
        there = {"Location": f"http://{store.host}/store/1?sig=secret"}
        server.script += [challenge, begun(), Answer(status=status, headers=there)]
        store.script.append(CREATED)
        assert send(server, BIG).total == BIG.size
    (stored,) = store.asked
    assert (stored.path, stored.authorization) == ("/store/1?sig=secret", "")
    assert stored.received == BIG.size
    assert [each.authorization[:5] for each in server.asked] == ["", "Basic", "Basic"]


def test_another_host_is_not_given_the_password_that_it_asks_for(server: ScriptedServer) -> None:
    ask = Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    with scripted_server() as store:
        server.script += [ask, begun(f"http://{store.host}/store/1?sig=secret")]
        store.script.append(ask)
        fail(server)
    assert [each.authorization for each in store.asked] == [""]


def test_a_registry_that_sends_us_round_in_circles_is_refused(server: ScriptedServer) -> None:
    server.script += [begun(), Answer(status=307, headers={"Location": "/round?sig=secret"})]
    assert "HTTP 307" in fail(server).text()
    assert len(server.asked) < 10


@pytest.mark.parametrize("wrong", [f"sha256:{'0' * 64}", "sha512:hunter2", ""])
def test_another_digest_than_was_sent_is_never_accepted(server: ScriptedServer, wrong: str) -> None:
    odd = Answer(status=201, headers={"Docker-Content-Digest": wrong})
    server.respond = uploading(odd, there=Answer(headers=dict(odd.headers)))
    assert "answers for another digest" in fail(server).text()
    server.script.append(odd)
    server.respond = None
    with RegistryClient(server.host, LOGIN) as registry:
        with pytest.raises(ToolFailed, match="answers for another digest"):
            registry.put_manifest("p/r", "latest", b"{}", "application/x")
        server.script[:] = [Answer(headers=odd.headers)]
        with pytest.raises(ToolFailed, match="answers for another digest"):
            registry.has_blob("p/r", SMALL.digest)


def test_an_immutable_tag_that_is_right_already_is_no_error(server: ScriptedServer) -> None:
    digest = MemoryBlob(data=b"{}").digest
    immutable = refuse(400, "TAG_INVALID", "the tag is immutable")

    def tagged(held: str) -> Callable[[Asked], Answer]:
        found = Answer(headers={"Docker-Content-Digest": held})
        return lambda asked: found if asked.method == "HEAD" else immutable

    with RegistryClient(server.host, LOGIN) as registry:
        server.respond = tagged(digest)
        assert registry.put_manifest("p/r", "v1", b"{}", "application/x") == digest
        server.respond = tagged(f"sha256:{'1' * 64}")
        with pytest.raises(ToolFailed, match="the tag is immutable"):
            registry.put_manifest("p/r", "v1", b"{}", "application/x")


def test_a_manifest_is_put_again_after_a_lost_answer(server: ScriptedServer) -> None:
    server.script += [Answer(how="cut"), CREATED]
    with RegistryClient(server.host, LOGIN, retries=QUICK) as registry:
        registry.put_manifest("p/r", "v1", b"{}", "application/x")
    assert [each.body for each in server.asked] == [b"{}", b"{}"]
    assert server.asked[0].headers["Content-Type"] == "application/x"


def test_a_mount_that_is_not_is_cancelled_even_if_that_fails(server: ScriptedServer) -> None:
    server.script += [begun("/up/1?_state=s"), Answer(status=503)]
    with RegistryClient(server.host, LOGIN, retries=QUICK) as registry:
        assert not registry.mount_blob("p/r", SMALL.digest, source="p/other")
    assert server.sent()[1:] == ["DELETE /up/1?_state=s"]
    digest = SMALL.digest.replace(":", "%3A")
    assert server.sent()[0] == f"POST /v2/p/r/blobs/uploads/?mount={digest}&from=p%2Fother"


def test_a_refused_mount_is_an_error(server: ScriptedServer) -> None:
    server.script.append(refuse(403, "DENIED", "not yours"))
    with (
        RegistryClient(server.host, LOGIN) as registry,
        pytest.raises(ToolFailed, match="DENIED: not yours"),
    ):
        registry.mount_blob("p/r", SMALL.digest, source="p/other")


def test_a_head_that_is_refused_is_explained(server: ScriptedServer) -> None:
    server.script.append(refuse(403, "DENIED", "no right to read"))
    with RegistryClient(server.host, LOGIN) as registry:
        with pytest.raises(ToolFailed, match="DENIED: no right to read"):
            registry.has_blob("p/r", SMALL.digest)
        with pytest.raises(ToolFailed, match="DENIED: no right to read"):
            registry.manifest_digest("p/r", "latest")
    assert [each.method for each in server.asked] == ["HEAD", "GET", "HEAD", "GET"]


def test_an_answer_without_an_end_is_not_read_to_it(server: ScriptedServer) -> None:
    server.script.append(Answer(body=b" " * (40 << 20)))
    with (
        RegistryClient(server.host, LOGIN) as registry,
        pytest.raises(ToolFailed, match="an answer without an end: more than 32 MiB"),
    ):
        registry.manifest("p/r", "latest")


@dataclass(frozen=True, kw_only=True)
class Broken(MemoryBlob):
    """A blob on a disk that fails."""

    def open(self) -> BinaryIO:
        class Stream(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise OSError(5, "Input/output error")

        return Stream()


def test_a_disk_that_cannot_be_read_is_not_the_registrys_fault(server: ScriptedServer) -> None:
    server.respond = uploading(CREATED)
    with (
        RegistryClient(server.host, LOGIN, retries=QUICK) as registry,
        pytest.raises(ToolFailed, match=r"cannot read the blob sha256:.*Input/output error"),
    ):
        registry.send_blob("p/r", Broken(data=b"x" * BLOCK))
    assert sum(each.method == "POST" for each in server.asked) == 1


def test_a_wrong_digest_of_what_is_there_stops_a_second_attempt(server: ScriptedServer) -> None:
    server.respond = uploading(Answer(how="cut"), there=NOT_THERE)
    assert isinstance(fail(server), Unreachable)
