"""The Markdown files that people read, and the blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: README and the like, and the documentation; what the build makes is left out.
PAGES = sorted(ROOT.glob("*.md")) + sorted(
    p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(p.relative_to(ROOT).parts)
)

_FENCE = re.compile(r"^( *)(`{3,}|:{3,})(\S*)[^\n]*\n(.*?)^\1\2 *$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text without the fence's indentation, and where it starts."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """The path below the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in these languages, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent, _, language, body = match.groups()
        if language in languages:
            body = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
            found.append(Block(page, text.count("\n", 0, match.start()) + 1, language, body))
    return found


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of all pages in these languages."""
    return [block for page in PAGES for block in blocks(page, *languages)]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
