"""Settings for all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# No test is timed: these machines are slow at times.
settings.register_profile("rayfleet", deadline=None)
settings.load_profile("rayfleet")


class ByFixtures(LoadScopeScheduling):
    """Give tests that share costly fixtures to one worker: a module's, and all of e2e.

    Marks (xdist_group) would do, but xdist 3.8 writes them where pytest 9.2 does not look.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "tests/e2e" if nodeid.startswith("tests/e2e/") else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures:
    """Spread the tests over the workers of `pytest -n`."""
    return ByFixtures(config, log)
