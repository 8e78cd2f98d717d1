"""One sandbox for all e2e tests, with a finished release in it.

Of the package and not of the session: clusters that idle while other tests run would slow them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.job_matrix import KINDS, end, prepare_bucket, start_driver, submit, wait_for
from tests.support.sandbox import ROOT, SandboxCli
from tests.support.sandbox_head import SandboxHead

# Tests may be of a working tree with changes; the tags then say so.
ALLOW = "--allow-dirty"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All e2e tests are slow; that one worker runs them all is tests/conftest.py's doing."""
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "e2e"):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="package")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCli]:
    """A sandbox that is up; taken down at the end, with proof that nothing is left."""
    cli = SandboxCli(tmp_path_factory.mktemp("state"))
    try:
        cli("sandbox.up").must()
        yield cli
    finally:
        cli("sandbox.down").must()
        assert cli.engine.leftovers() == ()
        assert not cli.place.folder.exists()


@pytest.fixture(scope="package")
def released(sandbox: SandboxCli) -> SandboxCli:
    """The sandbox after a release: four clusters on the published image."""
    sandbox("release", "--yes", ALLOW, "--waves", "100%", "--bake", "0s", "--json").must()
    return sandbox


@pytest.fixture(scope="package")
def matrix(released: SandboxCli) -> Iterator[SandboxHead]:
    """The head of a cluster that has jobs of every kind, a driver and a detached actor."""
    head = SandboxHead(released, "us-central2")
    prepare_bucket(head)
    submit(head, KINDS)
    start_driver(head)
    wait_for(head, KINDS, lines={})
    yield head
    if released.vms(head.cluster, "head"):  # other tests may have stopped it
        end(head, "all")
