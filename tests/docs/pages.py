"""Reads README.md and the pages below docs/: fenced blocks, links, and what is marked to be run.

The marks are HTML comments, which a reader of the page does not see:

`<!-- run -->`          before a console or python block: it is run, in the page's own folder
`<!-- run: slow -->`    the same, and the page's test is marked slow
`<!-- run, varies: 18, v1 -->`   the same; these numbers and words of the output differ each time

Times, rates, shares and sizes (a number and its unit) and run ids may differ without a word.
Everything else that a page shows must be printed as it stands.

First lines of blocks, which a reader does see: `# spec: NAME`, `# profile: NAME` and
`# file: NAME` put the block into the page's folder under that name. A YAML block with `stages:`
is a spec with or without such a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_ROWS = '{"image": "a.png", "text": "words"}\n' * 2000
"""More than `check` reads, so that it does not know how many there are."""
STAND_INS = {
    "clusters/ours.yaml": "scheduler: slurm\n",
    "data/a.png": "GIF89a",
    "data/train.jsonl": _ROWS,
    "data/heldout.jsonl": _ROWS,
    "data/colour.jsonl": _ROWS,
    "data/size.jsonl": _ROWS,
    "helpers/__init__.py": "",
    "models/qwen2-vl/config.json": '{"model_type": "qwen2_5_vl"}',
    "tables/codes.csv": "",
    **{
        f"models/{folder}/{name}.json": "{}"
        for folder in ("processor", "qwen2-vl")
        for name in ("tokenizer", "preprocessor_config", "processor_config", "chat_template")
    },
}
"""Files of the reader's own that the pages' specs name; `check` looks whether they exist, and
whether a manifest holds a row."""

_RUN_ID = r"-\d{8}-\d{6}-[0-9a-f]{4}\b"
_NUMBER = r"\d+(?:[.,]\d+)*"
_MEASURED = rf"{_NUMBER}(?= ?(?:(?:[num]?s|min|h|[kMGT]i?B|[\w ]+/s)\b|%))"
"""A number before a unit of time, size or rate, or a share."""

_FENCE = re.compile(r"^```(\w*)\s*$")
_MARK = re.compile(r"^<!-- (run|run: slow)(?:, varies: (.+))? -->$")
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
    varies: tuple[str, ...] = ()
    """Numbers and words of its output that differ each time."""

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
    mark: tuple[str, tuple[str, ...]] = ("", ())
    opened: tuple[int, str] | None = None
    body: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is not None:
            if line.rstrip() == "```":
                found.append(_block(page, opened, body, mark))
                mark, opened, body = ("", ()), None, []
            else:
                body.append(line)
        elif fence:
            opened = (number, fence[1])
        elif line.strip():
            match = _MARK.match(line.strip())
            varies = match[2].split(", ") if match and match[2] else ()
            mark = (match[1], tuple(varies)) if match else ("", ())
    assert opened is None, f"{page}: the fence of line {opened} is never closed"
    return tuple(found)


def _block(
    page: Path, opened: tuple[int, str], body: list[str], mark: tuple[str, tuple[str, ...]]
) -> Block:
    line, language = opened
    lines = tuple(body)
    return Block(page=page, line=line, language=language, lines=lines, mark=mark[0], varies=mark[1])


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


def is_shown(shown: str, printed: str, varies: tuple[str, ...] = ()) -> bool:
    """Whether a printed line is the one that a page shows, but for what differs each time."""
    words = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in varies]
    pattern = ""
    end = 0
    wanted = _plain(shown)
    for match in re.finditer("|".join([_RUN_ID, *words, _MEASURED]), wanted):
        pattern += re.escape(wanted[end : match.start()])
        pattern += _like(match[0])
        end = match.end()
    pattern += re.escape(wanted[end:])
    return re.fullmatch(pattern, _plain(printed)) is not None


def _like(text: str) -> str:
    if re.fullmatch(_RUN_ID, text):
        return _RUN_ID
    return _NUMBER if re.fullmatch(_NUMBER, text) else r"\S+"


def _plain(line: str) -> str:
    """A line without what only its width decides."""
    return re.sub(r"\s+", " ", re.sub(r"[─█·]+", "-", line)).strip()
