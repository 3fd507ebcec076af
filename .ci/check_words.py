"""Print words of docs, docstrings and messages that have a plainer one: `make lint`.

    python .ci/check_words.py [ROOT]

Exit code 1 if there are any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PLAINER = {
    r"mend(s|ed|ing)?": "fix, repair, retry",
    r"told|tells": "say, report, print (a program), know (a user)",
    r"anew": "again",
    r"whence|whereby|thereby|therein": "from which, where",
    r"likewise": "also",
    r"beside": "next to, besides, with",
    r"in the place of": "instead of",
    r"hand(s|ed) in": "submit",
    r"the like|its like": "similar",
    r"by itself": "alone, automatically",
    r"nobody|somebody|whoever": "no one, someone; name the subject",
    r"made up": "invented",
    r"says? so": "state what it says",
    r"goes? on": "continues",
    r"(lies|stands?) (in|on|there|here)|lie (there|here)": "is in",
    r"looked (at|through|for)": "read, checked, searched",
    r"for want of": "without",
    r"otherwise than": "unlike",
}
DOCSTRING_START = re.compile(r"(As|See|Of|The same|What|Whether|How|Why)\b")
JSON_VALUES = frozenset({"goes on"})
"""Values in JSON that other programs read."""
_PATTERNS = [
    (re.compile(rf"\b({word})\b", re.IGNORECASE), plain) for word, plain in PLAINER.items()
]
_GENERATED = re.compile(
    r"docs/(explanation/performance|reference/(api|options|records)|recipes/|guides/clusters/gpu)"
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)


def page_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines of a page with their numbers, without code and link targets."""
    prose = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), path.read_text())
    yield from enumerate(prose.splitlines(), start=1)


def source_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of docstrings and messages of a module with their numbers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value and node.value not in JSON_VALUES:
            for offset, line in enumerate(node.value.splitlines()):
                number = min(node.lineno + offset, node.end_lineno or node.lineno)
                yield number, re.sub(r"`[^`]*`", "", line)


def docstring_starts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield first lines of docstrings that begin with neither a verb nor a noun."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        first = (isinstance(node, kinds) and ast.get_docstring(node)) or ""
        if DOCSTRING_START.match(first):
            yield getattr(node, "lineno", 1), first.splitlines()[0]


def main(root: Path) -> int:
    """Print every place, and return the exit code."""
    pages = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    sources = [
        p for name in ("slurm_jobs", "pipeline") for p in sorted((root / name).rglob("*.py"))
    ]
    places = []
    for path in [*pages, *sources]:
        name = path.relative_to(root).as_posix()
        if _GENERATED.match(name):
            continue
        for number, line in (page_texts if path.suffix == ".md" else source_texts)(path):
            places += [
                f"{name}:{number}: `{match[0]}`; plainer: {plain}"
                for pattern, plain in _PATTERNS
                if (match := pattern.search(line))
            ]
        if path.suffix == ".py":
            places += [
                f"{name}:{number}: a docstring begins with neither a verb nor a noun: {first}"
                for number, first in docstring_starts(path)
            ]
    if places:
        print("\n".join(places))
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
