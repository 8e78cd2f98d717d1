"""What operators are told when a registry says no."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.errors import RayfleetError, ToolFailed
from rayfleet.image.oci.patience import Reply
from rayfleet.image.oci.refusals import (
    LONGEST_WORDS,
    Asked,
    RegistryFault,
    clean,
    error_codes,
    error_words,
    refusal,
)
from rayfleet.image.oci.rights import Action, missing_right

ASKED = Asked(host="r.example.com", what="take blob b", repository="p/r", user="me")


def reply(status: int, *errors: Any, reason: str = "Reason", **headers: str) -> Reply:
    data = json.dumps({"errors": errors}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, reason=reason, headers=named, data=data, host="r.example.com")


def error(code: str, message: str = "words", **more: Any) -> dict[str, Any]:
    return {"code": code, "message": message, **more}


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (reply(401, error("UNAUTHORIZED")), ToolFailed,
         ("refuses the user name or password of 'me'", "docker login r.example.com")),
        (reply(403, error("DENIED")), ToolFailed,
         ("does not let 'me' take blob b", "DENIED: words", "given this right")),
        (reply(401, error("DENIED"), WWW_Authenticate='Bearer error="insufficient_scope"'),
         ToolFailed, ("does not let 'me' take blob b",)),
        (reply(404, error("NAME_UNKNOWN")), ToolFailed,
         ("has no repository for p/r", "invoke cluster-docker")),
        (reply(413), ToolFailed, ("too large", "HTTP 413 Reason")),
        (reply(400, error("TAG_INVALID", "tag is immutable")), ToolFailed,
         ("does not take blob b", "HTTP 400 TAG_INVALID: tag is immutable")),
        (reply(507, error("UNKNOWN", detail={"Err": 28})), RegistryFault,
         ("fails to take blob b", 'HTTP 507 UNKNOWN: words ({"Err": 28})')),
        (reply(429, error("TOOMANYREQUESTS", "slow down")), ToolFailed,
         ("HTTP 429 TOOMANYREQUESTS: slow down",)),
        (reply(400, error("A"), error("B", "other")), ToolFailed, ("A: words; B: other",)),
    ],
)  # fmt: skip
def test_a_refusal_names_the_registry_the_cause_and_its_own_words(
    answer: Reply, kind: type[RayfleetError], words: tuple[str, ...]
) -> None:
    told = refusal(answer, ASKED)
    assert isinstance(told, kind)
    assert isinstance(told, RegistryFault) == (kind is RegistryFault)
    for each in ("r.example.com", *words):
        assert each in told.text()


def test_a_403_of_google_names_permission_repository_and_command() -> None:
    for action, permission, role in (
        (Action.PULL, "downloadArtifacts", "reader"),
        (Action.PUSH, "uploadArtifacts", "writer"),
        (Action.DELETE, "deleteArtifacts", "repoAdmin"),
    ):
        asked = Asked(
            host="us-east5-docker.pkg.dev",
            what="take uploads",
            repository="p/marin/marin_cluster",
            user="ci@p.iam.gserviceaccount.com",
            action=action,
        )
        told = refusal(reply(403, error("DENIED")), asked)
        assert f"artifactregistry.repositories.{permission} on " in told.why
        assert told.why.endswith("projects/p/locations/us-east5/repositories/marin")
        assert told.next_step == (
            "gcloud artifacts repositories add-iam-policy-binding marin --location=us-east5 "
            "--project=p --member=serviceAccount:ci@p.iam.gserviceaccount.com "
            f"--role=roles/artifactregistry.{role}"
        )


def test_the_right_of_a_project_that_belongs_to_a_domain() -> None:
    right = missing_right("eu-docker.pkg.dev", "example.com/p/r/i", Action.PULL)
    assert right is not None
    assert right.resource == "projects/example.com:p/locations/eu/repositories/r"
    assert '"user:$(gcloud config get account)"' in right.command
    assert missing_right("eu-docker.pkg.dev", "p", Action.PULL) is None
    assert missing_right("r.example.com", "p/r/i", Action.PULL) is None


def test_who_has_no_password_is_told_to_log_in() -> None:
    for host, step in (
        ("127.0.0.1:5000", "invoke sandbox.up"),
        ("us-east5-docker.pkg.dev", "gcloud auth application-default login"),
        ("r.example.com", "docker login r.example.com"),
    ):
        told = refusal(reply(401), Asked(host=host, what="answer"))
        assert told.next_step == step
        assert "wants a user name and password" in told.what


@pytest.mark.parametrize(
    "said",
    [
        "see https://storage.example.com/x?X-Sig=hunter2&y=1 for more",
        "see https://me:hunter2@example.com/x",
        "PUT /v2/p/r/blobs/uploads/1?_state=hunter2 failed",
        "got Authorization: Basic aHVudGVyMg-hunter2==",
        "token bearer eyJhunter2.eyJ-x_y failed",
        "the password hunter2 is wrong",
    ],
)
def test_secrets_are_not_repeated(said: str) -> None:
    asked = Asked(host="h", what="answer", user="me", secrets=("hunter2",))
    for answer in (reply(400, error("X", said)), reply(400, error("X", "y", detail=said))):
        assert "hunter2" not in refusal(answer, asked).text()
    assert "hunter2" not in refusal(reply(400, reason=said), asked).text()
    assert "hunter2" not in repr(asked)
    if "password" not in said:
        assert "hunter2" not in clean(said)


def test_words_cannot_flood_or_command_a_terminal() -> None:
    told = error_words(reply(400, error("X", "\x1b[2J\x07" + "word\n" * 10_000)))
    assert len(told) < LONGEST_WORDS + 20
    assert told.isprintable()


@given(st.binary() | st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["errors", "code", "detail"]),
                                                    inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_answer_is_too_odd(data: bytes) -> None:
    answer = Reply(status=400, reason="Bad", headers={}, data=data, host="h")
    assert error_words(answer).startswith("HTTP 400")
    assert all(isinstance(code, str) for code in error_codes(answer))
