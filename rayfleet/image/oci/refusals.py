"""What a registry said no to, in its own words and without a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.image.oci.http import is_loopback
from rayfleet.image.oci.patience import Reply
from rayfleet.image.oci.rights import GOOGLE_HOST, Action, missing_right

LONGEST_WORDS = 600
LONGEST_DETAIL = 200

_QUERY = re.compile(r"(\w+://[^\s?\"']*|/[^\s?\"']+)\?[^\s\"']*")
_LOGIN_IN_URL = re.compile(r"(\w+://)[^\s/@\"']+@")
_AUTHORIZATION = re.compile(r"\b(Basic|Bearer)\s+[\w.~+/=-]{8,}", re.IGNORECASE)


class NoRepository(ToolFailed):
    """The registry has no such repository."""


class RegistryFault(Unreachable):
    """The registry answers, but fails (HTTP 5xx) again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a registry was asked: to ``what`` (a verb and its object), as ``user``.

    ``action`` is the right that this takes; ``secrets`` are what it was sent and might repeat.
    """

    host: str
    what: str
    repository: str = ""
    user: str = ""
    action: Action = Action.PULL
    secrets: tuple[str, ...] = field(default=(), repr=False)


def refusal(reply: Reply, asked: Asked) -> RayfleetError:
    """The error for an answer that is not the one that was wanted."""
    host, words = asked.host, error_words(reply, secrets=asked.secrets)
    codes = error_codes(reply)
    who = repr(asked.user) if asked.user else "anonymous users"
    if reply.status == 401 and not _lacks_scope(reply):
        return ToolFailed(
            f"registry {host} refuses the user name or password of {who}"
            if asked.user
            else f"registry {host} wants a user name and password",
            why=words,
            next_step=_log_in(host),
        )
    if reply.status in {401, 403}:
        return _no_right(asked, who, words)
    if "NAME_UNKNOWN" in codes and asked.repository:
        return NoRepository(
            f"registry {host} has no repository for {asked.repository}",
            why=words,
            next_step="see that the project's name is right; invoke cluster-docker makes "
            "missing repositories",
        )
    if reply.status == 413:
        return ToolFailed(f"it is too large for registry {host} to {asked.what}", why=words)
    if reply.status >= 500:
        return RegistryFault(f"registry {host} fails to {asked.what}", why=words)
    return ToolFailed(f"registry {host} does not {asked.what}", why=words)


def error_codes(reply: Reply) -> frozenset[str]:
    """The specification's error codes in an answer."""
    return frozenset(str(entry.get("code", "")) for entry in _errors(reply))


def error_words(reply: Reply, *, secrets: Sequence[str] = ()) -> str:
    """Status, codes and messages of an answer in one line, without secrets.

    https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#error-codes
    """
    words = "; ".join(_entry_words(entry) for entry in _errors(reply))
    said = clean(words, secrets=secrets) or clean(reply.reason, secrets=secrets)
    return f"HTTP {reply.status} {said}".strip()


def clean(text: str, *, secrets: Sequence[str] = ()) -> str:
    """``text`` in one line of bounded length, without logins, queries and control characters."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    text = "".join(each if each.isprintable() else " " for each in text[: 4 * LONGEST_WORDS])
    text = _LOGIN_IN_URL.sub(r"\1…@", _QUERY.sub(r"\1?…", " ".join(text.split())))
    text = _AUTHORIZATION.sub(r"\1 …", text)
    return text if len(text) <= LONGEST_WORDS else f"{text[: LONGEST_WORDS - 1]}…"


def _errors(reply: Reply) -> Iterator[dict[str, object]]:
    try:
        entries = json.loads(reply.data)["errors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if isinstance(entries, list):
        yield from (entry for entry in entries if isinstance(entry, dict))


def _entry_words(entry: dict[str, object]) -> str:
    words = f"{entry.get('code', '')}: {entry.get('message', '')}"
    detail = entry.get("detail")
    if not detail:
        return words
    text = detail if isinstance(detail, str) else json.dumps(detail, sort_keys=True)
    return f"{words} ({text[:LONGEST_DETAIL]})"


def _lacks_scope(reply: Reply) -> bool:
    """True when a token server's token was good, but not for this (RFC 6750, section 3.1)."""
    return "insufficient_scope" in reply.headers.get("WWW-Authenticate", "")


def _no_right(asked: Asked, who: str, words: str) -> ToolFailed:
    what = f"registry {asked.host} does not let {who} {asked.what}"
    right = missing_right(asked.host, asked.repository, asked.action, account=asked.user)
    if right is None:
        mend = f"have the account given this right, or log in as another one: {_log_in(asked.host)}"
        return ToolFailed(what, why=words, next_step=mend)
    lacks = f"it takes {right.permission} on {right.resource}"
    return ToolFailed(what, why=f"{words}; {lacks}", next_step=right.command)


def _log_in(host: str) -> str:
    if GOOGLE_HOST.fullmatch(host):
        return "gcloud auth application-default login"
    return "invoke sandbox.up" if is_loopback(host) else f"docker login {host}"
