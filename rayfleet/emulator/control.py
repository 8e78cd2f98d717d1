"""The same happenings for another process: ``POST /emulator/preempt`` with ``{"name": …}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rayfleet.emulator import guest, happenings
from rayfleet.emulator.cloud import Cloud
from rayfleet.emulator.faults import Fault
from rayfleet.emulator.refusals import Refused

CONTROL = "/emulator/"


def control(cloud: Cloud, verb: str, raw: bytes) -> dict[str, Any]:
    """Do what ``verb`` says with the fields of the JSON object ``raw``.

    Raises:
        Refused: there is no such verb, field or machine.
    """
    try:
        _VERBS[verb](cloud, **json.loads(raw or b"{}"))
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(400, f"{verb}: {error}") from error
    return {}


def _inject(cloud: Cloud, **fault: Any) -> None:
    with cloud.lock:
        cloud.faults.add(Fault(**fault))


def _heal(cloud: Cloud) -> None:
    with cloud.lock:
        cloud.faults.clear()
        cloud.stockouts.clear()
        cloud.quotas.clear()


def _stockout(cloud: Cloud, kind: str, zone: str) -> None:
    with cloud.lock:
        cloud.stockouts.add((kind, zone))


def _quota(cloud: Cloud, metric: str, place: str, limit: int) -> None:
    with cloud.lock:
        cloud.quotas[metric, place] = limit


_VERBS: Mapping[str, Callable[..., object]] = {
    "advance": happenings.advance,
    "preempt": happenings.preempt,
    "remove": happenings.remove,
    "write": guest.write,
    "inject": _inject,
    "heal": _heal,
    "stockout": _stockout,
    "quota": _quota,
}
