"""Passwords, tokens and keys in a file that many read. What is found is never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rayfleet.fleet.lint.config import Config
from rayfleet.fleet.lint.finding import Finding
from rayfleet.fleet.lint.secret_forms import secret_in

# Of a key of the file whose whole value is secret.
_SECRET_KEY = re.compile(
    r"(?i:.*(?:password|passwd|secret|secret_access_key|access_key_secret|api_?key|auth_?token|token))"
    r"|credentials|access_key|aws_access_key_id|aws_session_token"
)
_PLACEHOLDER = re.compile(
    r"[$<{*/~.].*|(?i:x{3,}|changeme|none|null|true|false|your[-_ ].*)", re.DOTALL
)


def check_secrets(config: Config) -> Iterator[Finding]:
    """Every text of the file; a finding names the kind, and the place is enough to find it."""
    for trail, text in config.texts():
        kind = secret_in(text)
        if not kind and trail and _SECRET_KEY.fullmatch(str(trail[-1])):
            kind = "a secret" if len(text) >= 3 and not _PLACEHOLDER.fullmatch(text) else ""
        if kind:
            what = f"holds what looks like {kind}; fetch it on the machine, or mount it"
            yield config.error("secret", trail, what)
