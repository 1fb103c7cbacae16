"""A picture is text: SVG elements in the order they are drawn, in the colours of the page that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["COLOURS", "Drawing"]

COLOURS = {"teal": "#14967f", "orange": "#d9772b", "blue": "#4a7ddb", "red": "#d0443f", "grey": "#8a8f98"}
"""Readable on white and on black."""

STYLE = (
    ".mp{--mp-ink:#24292f;--mp-faint:#0001}"
    "@media(prefers-color-scheme:dark){.mp{--mp-ink:#d5d9de;--mp-faint:#fff2}}"
    ".mp text{font:13px system-ui,sans-serif;fill:var(--md-default-fg-color,var(--mp-ink))}"
    ".mp .mp-small{font-size:11px}.mp .mp-bold{font-weight:600}"
    ".mp .mp-line{stroke:var(--md-default-fg-color--light,var(--mp-ink));stroke-width:1;fill:none}"
    ".mp .mp-grid{stroke:var(--md-default-fg-color--lightest,var(--mp-faint));stroke-width:1;fill:none}"
    ".mp .mp-on{fill:#fff}"
)


class Drawing:
    """An SVG picture of a given size; x grows to the right and y down, both in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0) -> None:
        """A filled rectangle."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{height:.1f}"'
        self._parts.append(f'<rect {place} fill="{COLOURS[colour]}" fill-opacity="{opacity:g}"/>')

    def line(self, points: Iterable[tuple[float, float]], colour: str | None = None, kind: str = "line") -> None:
        """A line through points: coloured and thick, or of the page's own colour (`kind` "line" or "grid")."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        look = f'fill="none" stroke="{COLOURS[colour]}" stroke-width="2"' if colour else f'class="mp-{kind}"'
        self._parts.append(f'<polyline points="{path}" {look}/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """A small disc."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[colour]}"/>')

    def text(self, x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> None:
        """Words at the baseline y; `anchor` start, middle or end; `kind` small, bold or on (a coloured box)."""
        look = f' class="{" ".join(f"mp-{k}" for k in kind.split())}"' if kind else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(words)}</text>')

    def __str__(self) -> str:
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mp" role="img" aria-label="{escape(self.title)}" {size}>'
        )
        return "\n".join(
            [head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", *self._parts, "</svg>\n"]
        )
