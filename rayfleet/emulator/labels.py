"""What Google takes as a name and as a label."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from rayfleet.emulator.refusals import Refused, invalid

NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
# https://cloud.google.com/compute/docs/labeling-resources#requirements
LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}\Z")
LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}\Z")
MOST_LABELS = 64


def check_name(field: str, name: str) -> None:
    """Refuse a name that is not as RFC 1035 has it."""
    if not NAME.match(name):
        raise invalid(
            field, f"'{name}'. Must be a match of regex '[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?'"
        )


def check_labels(field: str, labels: Mapping[str, Any]) -> None:
    """Refuse labels that Google would not keep."""
    if len(labels) > MOST_LABELS:
        raise Refused(400, f"Invalid value for field '{field}': more than {MOST_LABELS} labels")
    for key, value in labels.items():
        if not LABEL_KEY.match(key):
            raise invalid(field, f"'{key}'. Label keys are lower-case letters, digits, '_', '-'.")
        if not LABEL_VALUE.match(value):
            raise invalid(field, f"'{value}'. Label values are lower-case letters, digits, '_-'.")


def fingerprint(value: object) -> str:
    """Changes when ``value`` does."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
