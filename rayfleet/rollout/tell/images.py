"""Which image a cluster runs, before and after, in words. Pure."""

from __future__ import annotations

from rayfleet.rollout.model import Target
from rayfleet.rollout.tell.facts import Standing

SHORT_DIGEST = len("sha256:") + 12
_NOT_DONE = frozenset((Standing.WAITING, Standing.SKIPPED, Standing.UNTOUCHED, Standing.LOCKED))
_TAKEN_BACK = frozenset((Standing.ROLLED_BACK, Standing.BACK_WITHOUT_JOBS))


def short(digest: str) -> str:
    """``sha256:`` and 12 digits; ``unknown`` for none."""
    return digest[:SHORT_DIGEST] or "unknown"


def image_text(target: Target, standing: Standing) -> str:
    """``OLD -> NEW`` for a cluster that was changed, and what became of it for others."""
    old, new = short(target.digest_now), short(target.digest_wanted)
    if target.digest_now == target.digest_wanted:
        return f"{old} (the same as before)"
    if standing in _NOT_DONE:
        return f"{old} (wanted: {new})"
    return f"{new}, back to {old}" if standing in _TAKEN_BACK else f"{old} -> {new}"
