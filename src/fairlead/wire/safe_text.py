"""Text that comes from anywhere, made safe to be shown on a terminal or in a log."""

from __future__ import annotations

from typing import Final

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
# Marks that turn the direction of text around can make one thing look like another.
_TURNS: Final = {code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNSAFE: Final = _CONTROLS | _TURNS | {ord("\u2028"): "\\u2028", ord("\u2029"): "\\u2029"}


def clean(text: str) -> str:
    """Text with everything made visible that would act on a terminal; newlines and tabs stay."""
    # What is printable has none of it, and is found out sooner.
    return text if text.isprintable() else text.translate(_UNSAFE)


def one_line(text: str) -> str:
    """Clean text on a single line."""
    return clean(text.replace("\n", " "))
