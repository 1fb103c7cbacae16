"""What reads well in the repository reads well on the site: fences, links and pictures are adapted, never the text.

- Words after a fence's language (`python bad`, `text output`) become titles; the site's parser knows no others.
- Links to files outside docs/ lead to their page on the site, or become the file's name where it has none.
- SVG pictures are put into the page, so that they follow its colours.
- The reference is made of docstrings, now.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from reference_pages import pages  # noqa: E402 - found through the path above

PAGES = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.zh-CN.md": "zh.md",
    "README.md": "docs/README.md",
}
"""Files of the repository's root, and the page of the site that holds or replaces each."""

TITLES = {"wrong": "not like this", "output": "prints", "torchrun": "under torchrun"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are files of the repository's root, and the reference."""
    for name, page in PAGES.items():
        if not page.startswith("docs/") and (ROOT / name).exists():
            files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.remove(files.get_file_from_path("reference/README.md"))
    for name, content in pages().items():
        files.append(File.generated(config, f"reference/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt fences and links."""
    markdown = re.sub(r"^```(\w+) +([^\n]+)$", _fence, markdown, flags=re.MULTILINE)
    source = next((name for name, own in PAGES.items() if own == page.file.src_uri), f"docs/{page.file.src_uri}")
    pieces = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if piece.startswith("```") else relink(piece, source, page.file.src_uri) for piece in pieces)


def _fence(found: re.Match[str]) -> str:
    language, words = found[1], found[2].split()
    if language == "json":
        title = f"mixprec {found[2]} --format json" if words[0] != "finding" else "a finding"
    else:
        title = next((TITLES[word] for word in words if word in TITLES), "")
        title = title or next((f"raises {w.partition('=')[2]}" for w in words if w.startswith("raises=")), "")
    return f'```{language} title="{title}"' if title else f"```{language}"


def relink(text: str, source: str, site: str) -> str:
    """`text` of the repository's file `source` with the links that the page `site` needs."""

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, mark, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = PAGES.get(place, place)
        if place in PAGES and not page.startswith("docs/"):
            page = f"docs/{page}"
        if not page.startswith("docs/") or page.endswith(".py"):
            return words if place in words else f"{words} (`{place}`)"
        back = posixpath.relpath(page.removeprefix("docs/"), posixpath.dirname(site) or ".")
        return f"[{words}]({back}{mark}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put SVG pictures into the page."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def picture(found: re.Match[str]) -> str:
        path = folder / found["src"]
        svg = path.read_text(encoding="utf-8") if path.exists() else ""
        return f'<div class="picture">{svg}</div>' if 'class="mp"' in svg else found[0]

    return re.sub(r'<p><img alt="[^"]*" src="(?P<src>[^"]+\.svg)" ?/?></p>', picture, html)
