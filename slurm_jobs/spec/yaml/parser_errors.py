"""Errors of the YAML parser: the place of each, and what to write instead. PURE."""

from __future__ import annotations

import re

import yaml

from slurm_jobs.spec.yaml.blanks import odd_blank_before
from slurm_jobs.spec.yaml.tabs_as_blanks import SpecLoader

_WRITE_QUOTED = "put quotes around the text"
_REMOVE_OR_QUOTE = "remove it, or put quotes around the text"
_ALIGN = "begin this line in the same column as the key or item above it"
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
    ("found '-'", "a list goes below its key, with all its items in one column"),
    ("sequence entries are not", "begin the list on the next line, or write [a, b]"),
    ("expected '<document start>'", "begin this line in the same column as the first key"),
    ("unknown escape character", "write \\\\ for a backslash, or put '...' around the text"),
    ("parsing a flow mapping", "put a comma between values, and close { with }"),
    ("parsing a flow sequence", "put a comma between values, and close [ with ]"),
    ("<stream end>", "close the bracket that is still open"),
    ("expected the node content", _REMOVE_OR_QUOTE),
    ("mapping values are not allowed", _ALIGN),
)
"""Part of the parser's message, and the remedy. The first match counts."""

_AT_CONTEXT = (
    *("end of stream", "document separator", "<stream end>"),
    *("scanning a simple key", "scanning an alias", "scanning an anchor"),
)
"""Messages for which the place where the parser began (an open quote, a line without a colon) says
more than the place where it stopped."""

_KEY_BEFORE = re.compile(r"\s*\S.*:\s")
"""A key and its value, before a second colon on the line."""
_HAS_KEY = re.compile(r":(\s|$)")
_TAB_AFTER_DASH = re.compile(r"[ ]*(?:-[ ]+)*-[ ]*\t")
_EXTRA = re.compile(
    r"expected (?:the node content|<block end>|'<document start>'), but found '([],}])'"
)


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark | None, str]:
    """Return where the mistake is (None if unknown), and what it is with the remedy."""
    odd = odd_blank_before(error, text)
    if odd is not None:
        return odd
    what = " ".join(part for part in (error.context, error.problem) if part)
    mark, began = error.problem_mark or error.context_mark, error.context_mark
    if mark is None:
        return None, what
    lines = text.splitlines()
    before = lines[mark.line][: mark.column] if mark.line < len(lines) else ""
    tab = _TAB_AFTER_DASH.match(before)
    if tab is not None and "are not allowed here" in what:
        at = yaml.Mark(mark.name, 0, mark.line, tab.end() - 1, None, 0)
        return at, "there is a tab between the dash and the key or item after it; type a space"
    earlier = _quote_above(error, text) or _line_without_key_above(what, before, lines, mark)
    if earlier is not None:
        return earlier
    is_open_above = "parsing a flow" in what and began is not None and began.line < mark.line
    if began is not None and (is_open_above or any(words in what for words in _AT_CONTEXT)):
        mark = began
    remedy = _remedy(what, before)
    return mark, f"{what}; {remedy}" if remedy else what


def _quote_above(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark, str] | None:
    """Return the quote that should have been closed on its line, and was closed by a later one."""
    stopped, after = error.problem_mark, error.problem_mark
    if error.context is not None and "scanning a quoted scalar" in error.context:
        after = error.context_mark
    last: yaml.ScalarToken | None = None
    try:
        for token in yaml.scan(text, SpecLoader):
            if stopped is None or token.start_mark.index >= stopped.index:
                break
            last = token if isinstance(token, yaml.ScalarToken) else last
    except yaml.YAMLError:
        pass  # it is being explained
    if last is None or after is None or last.style not in {"'", '"'}:
        return None
    end = last.end_mark.line
    if last.start_mark.line == end or end != after.line:
        return None
    return last.start_mark, (
        f"the quote that opens here is closed only on line {end + 1}, where more text follows; "
        "close it where the text ends"
    )


def _line_without_key_above(
    what: str, before: str, lines: list[str], mark: yaml.Mark
) -> tuple[yaml.Mark, str] | None:
    """Return the line without a key because of which a colon is refused at `mark`."""
    is_item = before.lstrip().startswith("- ")
    if "mapping values are not allowed" not in what or _KEY_BEFORE.match(before) or is_item:
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


def _remedy(what: str, before: str) -> str:
    """Return what to write instead; `before` is the line up to where the parser stopped."""
    if "mapping values are not allowed" in what and _KEY_BEFORE.match(before):
        return "put quotes around a value that holds a colon, or write | and the text below it"
    if "'<scalar>'" in what and before.rstrip().endswith(("'", '"')):
        return (
            "text follows a closing quote: write '' for a quote inside '...', or put "
            '"..." around it'
        )
    if "got '{'" in what and before.endswith("$"):
        return 'put quotes around a value with `${...}` that is inside { } or [ ]: "${...}"'
    extra = _EXTRA.search(what)
    if extra is not None:
        return f"there is one {extra[1]} too many: remove it, or put quotes around the text"
    for words, remedy in _REMEDIES:
        if words in what:
            return remedy
    if "<block end>" in what:
        return _REMOVE_OR_QUOTE if before.strip() else _ALIGN
    return ""
