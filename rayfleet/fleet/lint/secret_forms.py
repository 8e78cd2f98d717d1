"""What secrets look like in the texts of a config."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VALUE = r"['\"]?(?!['\"]?(?:[$<{*]|disabled\b|false\b|true\b|null\b|none\b|/|~|\.{3}|-))"
# A password may be short; a value that is a path, a variable or a placeholder is none.
PATTERNS: Mapping[str, re.Pattern[str]] = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"),
    "a key of Google": re.compile(r"\bAIza[\w-]{30,}"),
    "an access token of Google": re.compile(r"\bya29\.[\w-]{10,}"),
    "a key of Amazon": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}"),
    "a token of GitHub": re.compile(r"\b(?:gh[oprsu]_[A-Za-z0-9]{10,}|github_pat_\w{10,})"),
    "a token of GitLab": re.compile(r"\bglpat-[\w-]{8,}"),
    "a token of Hugging Face": re.compile(r"\bhf_[A-Za-z0-9]{10,}"),
    "an API key": re.compile(r"(?<!\w)sk-(?=[\w-]{0,60}\d)[\w-]{16,}"),
    "a token of Slack": re.compile(r"\bxox[a-z]-[\w-]{8,}"),
    "a signed token": re.compile(r"\beyJ[\w-]{8,300}\.eyJ[\w-]+"),
    "a bearer token": re.compile(r"(?i:\bbearer)\s+(?![$<{])[\w.~+/=-]{8,}"),
    "user and password in a URL": re.compile(r"://[^\s/:@'\"$]+:(?![$<{*])[^\s/@'\"]+@"),
    "a password of docker login": re.compile(
        rf"\blogin\b[^;&|\n]{{0,300}}\s(?:-p\s*|--password(?:=|\s+)){_VALUE}[^\s'\"]{{3,}}"
    ),
    "a password": re.compile(
        rf"(?i:(?<![\w-])--?[a-z-]{{0,30}}(?:password|passwd|token|secret[-_]key|api[-_]key))(?:=|\s+){_VALUE}[^\s'\"]{{6,}}"
    ),
    "a secret variable": re.compile(
        r"(?<![\w$-])[A-Za-z0-9_]*(?i:token|password|passwd|secret|api_?key|access_key)"
        rf"={_VALUE}[^\s'\"]{{6,}}"
    ),
}


def secret_in(text: str) -> str:
    """The kind of secret that ``text`` seems to hold, or nothing."""
    return next((kind for kind, pattern in PATTERNS.items() if pattern.search(text)), "")


def without_secrets(text: str) -> str:
    """``text`` with ``***`` where it seems to hold a secret."""
    for pattern in PATTERNS.values():
        text = pattern.sub("***", text)
    return text
