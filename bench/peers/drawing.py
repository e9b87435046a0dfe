"""A picture of some figures: bars, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

_WIDTH: Final = 720
_ROW: Final = 26
_LEFT: Final = 130
_RIGHT: Final = 90
_OURS: Final = "#0b7285"
_THEIRS: Final = "#868e96"


def bars(title: str, figures: Mapping[str, float], ours: str, *, least: bool = False) -> str:
    """One bar for each figure, the best first: the longest, or with `least` the shortest. Ours has its own colour."""
    most = max(figures.values())
    height = 44 + _ROW * len(figures)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-weight="bold" fill="#212529">{escape(title)}</text>',
    ]
    digits = 0 if most >= 100 else 2
    for row, (name, value) in enumerate(sorted(figures.items(), key=lambda figure: figure[1] if least else -figure[1])):
        top = 38 + _ROW * row
        width = max(1.0, value / most * (_WIDTH - _LEFT - _RIGHT))
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end" fill="#212529">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_ROW - 6}" '
            f'fill="{_OURS if name == ours else _THEIRS}"/>',
            f'<text x="{_LEFT + width + 6:.1f}" y="{top + 15}" fill="#212529">{value:,.{digits}f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
