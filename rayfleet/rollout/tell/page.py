"""The report of a rollout as one page of HTML that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Sequence

from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.model import Plan
from rayfleet.rollout.state import State


def html_report(plan: Plan, state: State, records: Sequence[Record]) -> str:
    """The whole rollout as a page that opens offline."""
    return f"<!doctype html><title>{html.escape(plan.id)}</title>"
