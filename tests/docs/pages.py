"""Reads README.md and docs/*.md: their fenced blocks, links, and what is marked to be run.

The marks are HTML comments, which a reader of the page does not see:

`<!-- run -->`          before a console or python block: it is run, in the page's own folder
`<!-- run: slow -->`    the same, and the page's test is marked slow

and first lines of blocks, which a reader does see: `# spec: NAME`, `# profile: NAME` and
`# file: NAME` put the block into the page's folder under that name. A YAML block with `stages:`
is a spec with or without such a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

STAND_INS = {
    "clusters/ours.yaml": "scheduler: slurm\n",
    "data/train.jsonl": "",
    "data/heldout.jsonl": "",
    "helpers/__init__.py": "",
    "tables/codes.csv": "",
    "models/processor/tokenizer.json": "",
    "models/qwen2-vl/tokenizer.json": "",
}
"""Files of the reader's own that the pages' specs name; `check` looks whether they exist."""

_FENCE = re.compile(r"^```(\w*)\s*$")
_MARK = re.compile(r"^<!-- (run|run: slow) -->$")
_NAMED = re.compile(r"# (spec|profile|file): (\S+)")
_HEADING = re.compile(r"^#+ (.+)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    """Of the opening fence, from 1."""
    language: str
    lines: tuple[str, ...]
    mark: str
    """`run`, `run: slow`, or empty."""

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def name(self) -> tuple[str, str] | None:
        """Kind and file name of a block that is a file."""
        match = _NAMED.match(self.lines[0]) if self.lines else None
        if match:
            return (match[1], match[2])
        is_spec = self.language == "yaml" and "stages:" in self.lines
        return ("spec", f"line-{self.line}.yaml") if is_spec else None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    mark, opened = "", None
    body: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is not None:
            if line.rstrip() == "```":
                start, language = opened
                found.append(
                    Block(page=page, line=start, language=language, lines=tuple(body), mark=mark)
                )
                mark, opened, body = "", None, []
            else:
                body.append(line)
        elif fence:
            opened = (number, fence[1])
        elif line.strip():
            match = _MARK.match(line.strip())
            mark = match[1] if match else ""
    assert opened is None, f"{page}: the fence of line {opened} is never closed"
    return tuple(found)


def write_files(page: Path, folder: Path) -> None:
    """Put the page's files and stand-ins into `folder`."""
    for name, text in STAND_INS.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for block in blocks(page):
        if block.name is not None:
            target = folder / block.name[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def links(page: Path) -> list[str]:
    """Targets of the page's links and pictures."""
    return [first or second for first, second in _LINK.findall(prose(page))]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names that GitHub gives to a page's headings."""
    found = set()
    for line in prose(page).splitlines():
        match = _HEADING.match(line)
        if match:
            kept = re.sub(r"[^\w\- ]", "", match[1].lower())
            found.add(kept.replace(" ", "-"))
    return frozenset(found)


def commands(block: Block) -> list[str]:
    """What a console block types: its lines after `$ `, continued lines joined."""
    joined = "\n".join(block.lines).replace("\\\n", "")
    return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def shown_output(block: Block) -> list[str]:
    """What a console block shows as printed; `...` stands for lines that are left out."""
    joined = "\n".join(block.lines).replace("\\\n", "")
    lines = [line.strip() for line in joined.splitlines() if not line.startswith("$ ")]
    return [line for line in lines if line not in {"", "..."}]
