"""Passwords, tokens and keys in a file that many read. What is found is never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rayfleet.fleet.document import Trail
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
        if not kind and trail[-1:] == ("value",) and _named_secret(config, trail, text):
            kind = "a secret"
        if kind:
            what = f"holds what looks like {kind}; fetch it on the machine, or mount it"
            yield config.error("secret", trail, what)


def _named_secret(config: Config, trail: Trail, text: str) -> bool:
    """Whether it is the value of a variable of a container, by the variable's name."""
    name = config.string(*trail[:-1], "name")
    secret = re.search(r"(?i)(?:token|password|passwd|secret|api_?key|access_key)$", name)
    return bool(secret) and len(text) >= 3 and not _PLACEHOLDER.fullmatch(text)
