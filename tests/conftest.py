"""Settings for all tests."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.depth import REASON

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what CI asks for."""
    parser.addoption(
        "--no-skips",
        action="store_true",
        help=f"fail a test or module that is skipped, unless it is {REASON!r}",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the skip of one test."""
    return _judged((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the skip of a whole module."""
    return _judged((yield), collector.config)


def _judged(report: Report, config: pytest.Config) -> Report:
    """``report``, failed if it is a skip where there may be none."""
    if report.outcome == "skipped" and config.getoption("--no-skips"):
        *_, reason = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
        if str(reason) != f"Skipped: {REASON}":
            report.outcome = "failed"
            report.longrepr = (
                f"{report.nodeid} must run here (--no-skips) and was skipped\n{reason}"
            )
    return report
