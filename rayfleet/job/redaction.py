"""Text without the secrets that it quotes, for everything that is printed of a job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"
SHORTEST_SECRET = 4
"""Characters. A shorter value is left: hiding every ``1`` of a text would make it useless."""

_SHORTEST_LINE = 8
_SECRET_WORD = re.compile(
    r"(?:token|key|secret|password|passwd|passphrase|pwd|credential|auth|signature)s?"
    r"|authorization|bearer|\w+(?:token|key|secret|password|passwd)s?|\w+auth"
)
_NEVER_COUNTS = re.compile(r"\w*(?:secret|pass|pwd|credential)\w*")
_COUNTING_WORDS = frozenset(
    ("batch", "count", "dim", "dims", "head", "heads", "id", "len", "length", "limit", "max")
) | frozenset(("min", "n", "new", "num", "per", "size"))
_ELSEWHERE = frozenset(("dir", "file", "mode", "path", "type"))
_HARMLESS = frozenset(("true", "false", "none", "null", MASK))
_NUMBER = re.compile(r"-?\d[\d_]*(?:\.\d+)?(?:e\d+)?", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# A single quote inside of single quotes, as shlex.quote writes it, and what it quotes in turn.
_NESTED = r"""'"'"'.*?(?:'"'"'|\Z)"""
_QUOTED = rf"""(?:{_NESTED}|\\+"[^"]*?(?:\\+"|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|'[^']*(?:'|\Z))"""
_PLAIN = r"""(?:[^\s"'\\;&|]|\\.)+"""
# A quote goes on with a word only where something of the word follows it: in the text
# bash -c "A=b" the last quote is not a part of the value, nor is a comma after "b".
_MORE = (
    rf"""(?:"'"(?=')|(?<="'"){_QUOTED}"""
    rf"""|(?<=["'])(?![,)\]}}:]){_PLAIN}|(?=["'][^\s;&|)\]}},"']){_QUOTED})"""
)
_VALUE = rf"""(?:{_QUOTED}|{_PLAIN}){_MORE}*"""
_SCHEME = r"(?:(?:bearer|basic|digest|token)[ \t]+)?"

_ASSIGNED = re.compile(
    r"(?<![\w$])(?P<name>[A-Za-z_][\w.-]*)"
    r"""(?P<sep>\\*["']?(?:[ \t]*(?:=>|:+=?)[ \t]*|[ \t]+=+[ \t]+|=+))"""
    rf"(?P<scheme>{_SCHEME})(?P<value>{_VALUE})",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(
    r"""(?<![\w-])--?(?P<name>[A-Za-z][\w.-]*)(?P<sep>[ \t]+|\\*["'],[ \t]*)"""
    rf"""(?P<scheme>)(?!["']?--)(?!-\w(?:\s|\Z))(?P<value>{_VALUE})""",
    re.DOTALL,
)
_EDGES = re.compile(r"""(?P<open>\\*["'])?.*?(?P<end>\\*["']|[)\]},.:]*)\Z""", re.DOTALL)

_USERINFO = re.compile(r"""(?P<scheme>\b[A-Za-z][\w+.-]*://)(?!git@)[^\s/'"<>]+@""")
_BEARER = re.compile(r"(?P<scheme>\bbearer[ \t]+)(?!token\b)[^\s\"'\\]+", re.IGNORECASE)
_WANDB = re.compile(r"(?P<scheme>\bwandb[ \t]+login[ \t]+(?:--\S+[ \t]+)*)[0-9a-f]{40}\b")
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9])(?:"
    r"hf_(?:(?=[A-Za-z]*\d)[A-Za-z0-9]{10,}|[A-Za-z0-9]{20,})"
    r"|gh[oprsu]_[A-Za-z0-9]{10,}"
    r"|github_pat_\w{10,}"
    r"|sk-(?=[\w-]*\d)[\w-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|AIza[\w-]{30,}"
    r"|ya29\.[\w.-]+"
    r"|xox[a-z]-[\w-]+"
    r"|glpat-[\w-]{8,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]+(?:\.[\w-]*)?"
    r")",
    re.DOTALL,
)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` with ``***`` in the place of all that is or looks like a secret.

    Masked are: each of ``secrets`` of at least 4 characters, as it is and as JSON, Python and
    URLs write it; the value of ``NAME=value``, ``NAME: value``, ``--name value`` and their
    quoted forms where :func:`looks_secret` says so of the name; user and password in a URL;
    what follows ``Bearer``; private keys; and tokens of well-known shape (Hugging Face,
    GitHub, GitLab, OpenAI, AWS, Google, Slack, JSON web tokens).

    When in doubt it masks, but for numbers under a name that counts: ``--num-keys 3`` and
    ``max_tokens=4096`` stay. A secret with no name and no shape cannot be told from a word.
    """
    for form in _forms(secrets):
        text = text.replace(form, MASK)
    text = _SHAPES.sub(MASK, text)
    for after in (_USERINFO, _BEARER, _WANDB):
        end = "@" if after is _USERINFO else ""
        text = after.sub(lambda found, end=end: f"{found['scheme']}{MASK}{end}", text)  # type: ignore[misc]
    text = _OPTION.sub(_masked, text)
    return _ASSIGNED.sub(_masked, text)


def redacted_log(text: str, entrypoint: str) -> str:
    """A job's log without the secrets of its ``entrypoint``, which Ray writes at its top.

    What the job itself prints is left as it is.
    """
    for line in entrypoint.splitlines():
        masked = redacted(line)
        if masked != line:
            text = text.replace(line, masked)
    return text


def redacted_values(values: Mapping[str, str]) -> dict[str, str]:
    """``values`` with the mask in the place of every secret: by name, and within each text."""
    return {
        name: MASK if looks_secret(name) and _worth_hiding(name, value) else redacted(value)
        for name, value in values.items()
    }


def env_values(runtime_env: object) -> tuple[str, ...]:
    """The values of the ``env_vars`` of a runtime environment, none of which may be shown."""
    env = runtime_env.get("env_vars") if isinstance(runtime_env, Mapping) else None
    return tuple(map(str, env.values())) if isinstance(env, Mapping) else ()


def secrets_of(env_vars: Mapping[str, str]) -> tuple[str, ...]:
    """The values of ``env_vars`` whose names look secret: what no text should quote."""
    return tuple(value for name, value in env_vars.items() if looks_secret(name))


def looks_secret(name: str) -> bool:
    """True when a variable, option or header called ``name`` is likely to hold a secret.

    That is when one of its words is token, key, secret, password, credential, auth or the
    like. Names of places (``TOKEN_PATH``) and kinds (``AUTH_MODE``) are none.
    """
    words = _words(name)
    if not words or words[-1] in _ELSEWHERE:
        return False
    return any(_SECRET_WORD.fullmatch(word) for word in words)


def _masked(found: re.Match[str]) -> str:
    whole, value = found[0], found["value"]
    if not looks_secret(found["name"]) or not _worth_hiding(found["name"], value):
        return whole
    edges = _EDGES.fullmatch(value)
    opened = (edges and edges["open"]) or ""
    end = (edges and edges["end"]) or ""
    if end.lstrip("\\")[:1] in {'"', "'"} and end != opened:
        end = ""
    kept = whole[: len(whole) - len(value)]
    return f"{kept}{opened if opened == end else ''}{MASK}{end}"


def _worth_hiding(name: str, value: str) -> bool:
    bare = value.strip("\"'\\)]},.:")
    if not bare or bare.lower() in _HARMLESS:
        return False
    return not (_NUMBER.fullmatch(bare) and _counts(name))


def _counts(name: str) -> bool:
    words = _words(name)
    if any(_NEVER_COUNTS.fullmatch(word) for word in words):
        return False
    return bool(_COUNTING_WORDS.intersection(words)) or words[-1] in {"tokens", "keys"}


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _forms(secrets: Iterable[str]) -> list[str]:
    """Every way in which one of ``secrets`` may stand in a text, longest first."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) < SHORTEST_SECRET:
            continue
        forms.update((secret, repr(secret)[1:-1], quote(secret, safe="")))
        forms.update((json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]))
        # A head may echo one line of a key only.
        forms.update(line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)
    return sorted(forms, key=lambda form: (-len(form), form))
