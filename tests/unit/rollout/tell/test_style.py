"""The colours of the page can be told apart from what they stand on (WCAG 2.2, AA)."""

from __future__ import annotations

import re

import pytest

from rayfleet.rollout.tell.style import STYLE

LIGHT, DARK = STYLE.split("@media(prefers-color-scheme:dark)")
TEXTS = (
    ("text", "card"),
    *(("mute", ground) for ground in ("card", "bg", "soft")),
    *(("link", ground) for ground in ("card", "bg")),
    *((tone, f"{tone}bg") for tone in ("good", "bad", "warn", "back", "busy")),
)
SEGMENTS = ("a1", "a2", "a3", "b1", "b2", "b3", "c1", "d1", "e1", "e2", "e3", "f1", "rb", "rb2")


def colours(style: str) -> dict[str, str]:
    """The colours that a part of the style sheet defines."""
    return dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})\b", style.partition("}")[0]))


def luminance(colour: str) -> float:
    """Relative luminance of ``#rgb`` or ``#rrggbb``."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [colours(LIGHT), colours(LIGHT) | colours(DARK)])
def test_texts_and_segments_have_enough_contrast(theme: dict[str, str]) -> None:
    for text, ground in TEXTS:
        assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
    for segment in (*SEGMENTS, "fail"):
        assert contrast("#fff", theme[segment]) >= 4.5, segment
        assert contrast(theme[segment], theme["card"]) >= 3, segment
