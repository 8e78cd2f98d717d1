"""Host keys, kept in OpenSSH's own format, so that plain ``ssh`` can use the same file:

    ssh -o UserKnownHostsFile=FILE -o HostKeyAlias=ALIAS ...

The format is the section SSH_KNOWN_HOSTS FILE FORMAT of sshd(8).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import Unreachable, UsageError
from rayfleet.files import write_atomically
from rayfleet.locks import file_lock

if TYPE_CHECKING:
    from paramiko import PKey

LOCK_SECONDS = 10.0
REVOKED = "@revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """One public host key: its ``kind`` (``ssh-ed25519`` …) and the base64 of its blob."""

    kind: str
    data: str
    revoked: bool = False

    @property
    def fingerprint(self) -> str:
        """What ``ssh-keygen -l`` prints: ``SHA256:`` and unpadded base64."""
        digest = hashlib.sha256(base64.b64decode(self.data)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def record_host_key(path: Path, alias: str, key_line: str) -> None:
    """Make ``key_line`` the only key of ``alias`` in ``path``; other lines stay as they are.

    ``key_line`` is the content of an ``ssh_host_*_key.pub`` file: kind, base64, comment. Several
    lines record several keys.

    Raises:
        UsageError: it is no public key, or ``alias`` cannot stand in a known_hosts file.
        PrerequisiteMissing: the file cannot be written.
    """
    if not re.fullmatch(r"[\w.:\[\]-]+", alias):
        raise UsageError(f"{alias!r} cannot be a host alias", why="it has special characters")
    keys = public_keys(key_line, alias)
    _replace(path, alias, [f"{alias} {key.kind} {key.data}" for key in keys])


def public_keys(text: str, whose: str) -> tuple[HostKey, ...]:
    """The public host keys in ``text``, a line each: kind, base64, comment.

    Raises:
        UsageError: there is none, or a line is none.
    """
    keys = [_parsed_key(line.split()) for line in text.splitlines() if line.strip()]
    found = tuple(key for key in keys if key is not None)
    if not found or len(found) < len(keys):
        raise UsageError(f"no public host key for {whose}", why=f"got {text.strip()[:80]!r}")
    return found


def forget_host(path: Path, alias: str) -> None:
    """Drop every key of ``alias`` from ``path``; fine when there is none."""
    if path.exists():
        _replace(path, alias, [])


def lookup(path: Path, name: str) -> tuple[HostKey, ...]:
    """The keys that ``path`` holds for ``name``: plain, hashed or wildcard entries.

    Revoked keys are among them. No file means no keys; lines that cannot be read are skipped.
    ``@cert-authority`` lines do not count: certificates of hosts are not supported.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ()
    return tuple(key for line in text.splitlines() if (key := _matching_key(line, name)))


class KnownKeysOnly:
    """Paramiko's missing host key policy; given no keys itself, paramiko asks it about each."""

    def __init__(
        self,
        known: tuple[HostKey, ...],
        *,
        whose: str,
        host: str,
        recorded_in: Path,
        worker: str = "",
    ) -> None:
        """``whose`` is the cluster, or cluster/worker; ``worker`` the alias of a worker's key."""
        cluster = whose.partition("/")[0]
        self._known = known
        self._what = f"{whose}: the host key of {host}"
        self._nowhere = (
            "its cloud keeps no record of it"
            if worker
            else f"keys are recorded in {recorded_in} when rayfleet starts a cluster"
        )
        self._learn = (
            f"compare it on the worker, then add it to ~/.ssh/known_hosts as {worker}"
            if worker
            else f"invoke restart --cluster {cluster}"
        )
        self._replace = (
            f"find out which: invoke status --cluster {cluster}"
            if worker
            else f"find out which, then run: {self._learn}"
        )

    def preferred(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """``kinds``, those first for which a key is known; else a good head looks changed."""
        known = {key.kind.replace("ssh-rsa", "rsa-sha2-512") for key in self._known}
        return tuple(sorted(kinds, key=lambda kind: kind not in known))

    def missing_host_key(self, _client: object, _name: str, key: PKey) -> None:
        """Judge the key that the server has proved to own.

        Raises:
            Unreachable: it is not known, has changed, or is revoked.
        """
        offered = HostKey(kind=key.get_name(), data=key.get_base64())
        shown = f"it offers {offered.kind} {offered.fingerprint}"
        same = [known for known in self._known if known.data == offered.data]
        if any(known.revoked for known in same):
            raise Unreachable(f"{self._what} is revoked", why=shown)
        if same:
            return
        if not self._known:
            raise Unreachable(
                f"{self._what} is not known",
                why=f"{shown}; {self._nowhere}",
                next_step=self._learn,
            )
        expected = ", ".join(f"{known.kind} {known.fingerprint}" for known in self._known)
        raise Unreachable(
            f"{self._what} has changed",
            why=f"{shown}, known is {expected}; another machine answers, or this one was "
            "replaced without rayfleet",
            next_step=self._replace,
        )


def _replace(path: Path, alias: str, new_lines: Iterable[str]) -> None:
    with file_lock(path.with_name(f"{path.name}.lock"), what=str(path), timeout=LOCK_SECONDS):
        old = path.read_text().splitlines() if path.exists() else []
        kept = [left for line in old if (left := _without(line, alias)) is not None]
        new = [*kept, *new_lines]
        if sorted(new) != sorted(old):
            write_atomically(path, "".join(f"{line}\n" for line in new), mode=0o600)


def _without(line: str, alias: str) -> str | None:
    names, separator, rest = line.partition(" ")
    if not separator or names.startswith(("#", "@")):
        return line
    left = [name for name in names.split(",") if name != alias]
    return f"{','.join(left)} {rest}" if left else None


def _matching_key(line: str, name: str) -> HostKey | None:
    fields = line.split()
    marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
    if marker not in {"", REVOKED} or len(fields) < 3 or fields[0].startswith("#"):
        return None
    if not _names_match(fields[0], name):
        return None
    return _parsed_key(fields[1:], revoked=marker == REVOKED)


def _names_match(names: str, wanted: str) -> bool:
    patterns = names.split(",")
    if any(p.startswith("!") and _pattern_matches(p[1:], wanted) for p in patterns):
        return False
    return any(_pattern_matches(pattern, wanted) for pattern in patterns)


def _pattern_matches(pattern: str, wanted: str) -> bool:
    if pattern.startswith("|1|"):
        return _hash_matches(pattern, wanted)
    if "*" not in pattern and "?" not in pattern:
        return pattern.lower() == wanted.lower()
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, wanted, re.IGNORECASE) is not None


def _hash_matches(hashed: str, wanted: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in hashed.split("|")[2:4])
    except ValueError:
        return False
    # SHA-1 is what OpenSSH's HashKnownHosts writes; it hides names, it does not verify keys.
    return hmac.compare_digest(hmac.new(salt, wanted.encode(), "sha1").digest(), digest)


def _parsed_key(fields: list[str], *, revoked: bool = False) -> HostKey | None:
    if len(fields) < 2:
        return None
    kind, data = fields[:2]
    try:
        blob = base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
    # The blob repeats the kind after its length, four bytes long (RFC 4253, section 6.6).
    if blob[4 : 4 + int.from_bytes(blob[:4])] != kind.encode():
        return None
    return HostKey(kind=kind, data=data, revoked=revoked)
