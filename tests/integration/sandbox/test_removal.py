"""A container is removed although the engine fails to empty its folder at first."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from docker import DockerClient
from docker.errors import APIError

from rayfleet.sandbox.removal import remove_container
from tests.support.scripted_http import Answer, ScriptedServer, scripted_server

pytestmark = pytest.mark.integration

GONE = Answer(status=204, body=b"")


def refusal(status: int, message: str) -> Answer:
    """As Docker 20.10 words it."""
    return Answer(
        status=status,
        body=json.dumps({"message": message}).encode(),
        headers={"Content-Type": "application/json"},
    )


# Seen once in a whole run of the tests, when a worker was preempted.
NOT_EMPTY = refusal(
    500,
    'container 73ab: driver "overlay2" failed to remove root filesystem: '
    "unlinkat /var/lib/docker/overlay2/4043: directory not empty",
)


@pytest.fixture
def engine() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


def client(engine: ScriptedServer) -> DockerClient:
    return DockerClient(base_url=f"tcp://{engine.host}", version="1.41")


def test_a_container_whose_folder_was_not_empty_is_removed_a_moment_later(
    engine: ScriptedServer,
) -> None:
    engine.script = [NOT_EMPTY, NOT_EMPTY, GONE]
    remove_container(client(engine), "worker")
    assert engine.sent() == ["DELETE /v1.41/containers/worker?v=True&link=False&force=True"] * 3


@pytest.mark.parametrize(
    "answer",
    [
        GONE,
        refusal(404, "No such container: worker"),
        refusal(409, "removal of container worker is already in progress"),
    ],
)
def test_a_container_that_is_gone_or_going_is_asked_for_once(
    engine: ScriptedServer, answer: Answer
) -> None:
    engine.script = [answer]
    remove_container(client(engine), "worker")
    assert len(engine.asked) == 1


def test_any_other_refusal_is_told_at_once(engine: ScriptedServer) -> None:
    engine.script = [refusal(500, "the disk is on fire")]
    with pytest.raises(APIError, match="the disk is on fire"):
        remove_container(client(engine), "worker")
    assert len(engine.asked) == 1
