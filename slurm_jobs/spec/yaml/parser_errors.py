"""Errors of the YAML parser: the place of each, and what to write instead. PURE."""

from __future__ import annotations

import re

import yaml

from slurm_jobs.spec.yaml.blanks import SpecLoader, odd_blank_before

_KEY_BEFORE = re.compile(r"\s*\S.*:\s")
"""A key and its value, before a second colon on the line."""

_WRITE_QUOTED = "put quotes around the text"
_TAB_AFTER_DASH = re.compile(r"[ ]*(?:-[ ]+)*-[ ]*\t")
_REMEDIES: tuple[tuple[str, str], ...] = (
    ("scanning a tag", "leave out the tag"),
    ("'\\t'", "indent with spaces, not tabs"),
    ("expected a single document", "a spec is one document, so leave out the second `---`"),
    ("'%'", _WRITE_QUOTED),
    ("'@'", _WRITE_QUOTED),
    ("'`'", _WRITE_QUOTED),
    ("scanning an alias", _WRITE_QUOTED),
    ("scanning an anchor", _WRITE_QUOTED),
    ("undefined alias", "put quotes around text that begins with *"),
    ("while scanning a quoted scalar", "the quote that opens here is never closed"),
    ("while scanning a simple key", "write `key: value`, with a blank after the colon"),
    ("while scanning a block scalar", "the text after | or > begins on the next line"),
    ("found '-'", "a list goes below its key, not next to other keys"),
    ("sequence entries are not", "begin the list on the next line, or write [a, b]"),
    ("expected '<document start>'", "begin this line in the same column as the first key"),
    ("expected the node content", _WRITE_QUOTED),
    ("unknown escape character", "write \\\\ for a backslash, or put '...' around the text"),
    ("parsing a flow mapping", "put a comma between values, and close { with }"),
    ("parsing a flow sequence", "put a comma between values, and close [ with ]"),
)
"""Part of the parser's message, and the remedy. The first match counts."""

_AT_CONTEXT = (
    *("end of stream", "document separator"),
    *("scanning a simple key", "scanning an alias", "scanning an anchor"),
)
"""Messages for which the place where the parser began (an open quote, a line without a colon) says
more than the place where it stopped."""

_FOUND_EXTRA = re.compile(r"(?:flow node .*|<block end>.*|<document start>.*)found '([],}])'")
_HAS_KEY = re.compile(r":(\s|$)")


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark | None, str]:
    """Return where the mistake is (None if unknown), and what it is with the remedy."""
    odd = odd_blank_before(error, text)
    if odd is not None:
        return odd
    what = " ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    if mark is not None:
        earlier = _open_above(error, what, text, mark) or _cause_above(what, lines, mark)
        if earlier is not None:
            return earlier
    if error.context_mark is not None and any(words in what for words in _AT_CONTEXT):
        mark = error.context_mark
    before = _before(lines, mark) if mark is not None else ""
    remedy = _remedy(what, before, lines[: mark.line] if mark is not None else [])
    return mark, f"{what}; {remedy}" if remedy else what


def _open_above(
    error: yaml.MarkedYAMLError, what: str, text: str, mark: yaml.Mark
) -> tuple[yaml.Mark, str] | None:
    """Return the quote or bracket on an earlier line that should have been closed."""
    last: yaml.ScalarToken | None = None
    brackets = []
    try:
        for token in yaml.scan(text, SpecLoader):
            if token.start_mark.index >= mark.index:
                break
            if isinstance(token, (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)):
                brackets.append(token.start_mark)
            elif isinstance(token, (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)):
                brackets = brackets[:-1]
            elif isinstance(token, yaml.ScalarToken):
                last = token
    except yaml.YAMLError:
        pass  # it is being explained
    after = error.context_mark if "scanning a quoted scalar" in what else None
    if last is not None and last.style in {"'", '"'}:
        end = last.end_mark.line
        if last.start_mark.line < end == (after or mark).line:
            return last.start_mark, (
                f"the quote that opens here is closed only on line {end + 1}, where more text "
                "follows; close it where the text ends"
            )
    opened = brackets[-1] if brackets and "<stream end>" in what else None
    if "parsing a flow sequence" in what or "parsing a flow mapping" in what:
        opened = error.context_mark
    if opened is None or opened.line >= mark.line:
        return None
    is_mapping = "flow mapping" in what or text[opened.index : opened.index + 1] == "{"
    pair = "{ with }" if is_mapping else "[ with ]"
    return opened, (
        f"what opens here is still open on line {mark.line + 1}; close {pair}, and put a "
        "comma between values"
    )


def _cause_above(what: str, lines: list[str], mark: yaml.Mark) -> tuple[yaml.Mark, str] | None:
    """Return the tab or the line without a key because of which a colon is refused at `mark`."""
    before = _before(lines, mark)
    if "mapping values are not allowed" not in what:
        return None
    if tab := _TAB_AFTER_DASH.match(before):
        at = yaml.Mark(mark.name, 0, mark.line, tab.end() - 1, None, 0)
        return at, "there is a tab between the dash and a key; type a space"
    if _KEY_BEFORE.match(before) or before.lstrip().startswith("- "):
        return None
    first = None  # of the last lines without a key, which the parser took for one text
    for number in range(mark.line - 1, -1, -1):
        line = lines[number].strip()
        if line.startswith("#") or _HAS_KEY.search(line):
            break
        first = number if line else first
        if line.startswith("- "):
            break
    if first is None:
        return None
    column = len(lines[first]) - len(lines[first].lstrip())
    at = yaml.Mark(mark.name, 0, first, column, None, 0)
    return at, "this line is not `key: value` (a blank follows the colon)"


def _before(lines: list[str], mark: yaml.Mark) -> str:
    """Return the mark's line up to the mark."""
    return lines[mark.line][: mark.column] if mark.line < len(lines) else ""


def _is_below_item(before: str, above: list[str]) -> bool:
    """Check whether an item of a list is above, before any line that is further to the left."""
    indent = len(before) - len(before.lstrip())
    for line in reversed(above):
        stripped = line.lstrip()
        if stripped.startswith("- "):
            return True
        if stripped and len(line) - len(stripped) < indent:
            break
    return False


def _remedy(what: str, before: str, above: list[str]) -> str:
    is_item = "<block sequence start>" in what or "found '-'" in what or before.startswith("-")
    is_item = is_item or before.lstrip().startswith("- ")
    if "mapping values are not allowed" in what and _KEY_BEFORE.match(before):
        return "put quotes around a value that holds a colon, or write | and the text below it"
    if is_item and _is_below_item(before, above):
        return "begin this line in the same column as the item above it"
    if "mapping values are not allowed" in what:
        return "begin this line in the same column as the key above it"
    if "'<scalar>'" in what and before.rstrip().endswith(("'", '"')):
        return (
            "text follows a closing quote: write '' for a quote inside '...', or put "
            '"..." around it'
        )
    if "got '{'" in what and before.endswith("$"):
        return 'put quotes around a value with `${...}` that is inside { } or [ ]: "${...}"'
    extra = _FOUND_EXTRA.search(what)
    if extra is not None:
        return f"there is one {extra[1]} too many: remove it, or put quotes around the text"
    for words, remedy in _REMEDIES:
        if words in what:
            return remedy
    if "<block end>" in what and not before.strip():
        return "begin this line in the same column as the other keys of its mapping"
    return _WRITE_QUOTED if "<block end>" in what else ""
