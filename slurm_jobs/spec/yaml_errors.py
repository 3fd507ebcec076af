"""What the YAML parser complains about -> what to write instead, and where. PURE."""

from __future__ import annotations

import re

import yaml

from slurm_jobs.spec.yaml_blanks import SpecLoader, odd_blank_before

_KEY_BEFORE = re.compile(r"\S.*:\s")
"""A key with its value, on the line of a second colon."""

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
    ("found '-'", "a list stands below the key that it belongs to, not beside keys"),
    ("sequence entries are not", "begin the list on the next line, or write [a, b]"),
    ("expected '<document start>'", "begin this line in the same column as the first key"),
    ("expected the node content", _WRITE_QUOTED),
    ("unknown escape character", "write \\\\ for a backslash, or put '...' around the text"),
    ("parsing a flow mapping", "put a comma between values, and close { with }"),
    ("parsing a flow sequence", "put a comma between values, and close [ with ]"),
)
"""Part of the parser's words, and the remedy; the first that fits."""

_AT_CONTEXT = (
    *("end of stream", "document separator"),
    *("scanning a simple key", "scanning an alias", "scanning an anchor"),
)
"""Where the parser began says more than where it gave up: an open quote, a line without colon."""


_FOUND_EXTRA = re.compile(r"(?:flow node .*|<block end>.*|<document start>.*)found '([],}])'")
_HAS_KEY = re.compile(r":(\s|$)")


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark | None, str]:
    """Where the mistake is (None where the parser does not say), what it is, and the remedy."""
    what = " ".join(part for part in (error.context, error.problem) if part)
    odd = odd_blank_before(error, text)
    if odd is not None:
        return odd
    mark = error.problem_mark or error.context_mark
    if mark is not None:
        earlier = _cause_above(error, what, text, mark)
        if earlier is not None:
            return earlier
    if error.context_mark is not None and any(words in what for words in _AT_CONTEXT):
        mark = error.context_mark
    remedy = _remedy(what, _before(text, mark), _lines_above(text, mark))
    return mark, f"{what}; {remedy}" if remedy else what


def _cause_above(
    error: yaml.MarkedYAMLError, what: str, text: str, mark: yaml.Mark
) -> tuple[yaml.Mark, str] | None:
    """The mistake, if it stands on an earlier line than the one where the parser gave up."""
    second = error.context_mark if "scanning a quoted scalar" in what else None
    quoted, bracket = _open_things(text, mark if second is None else second, mark)
    if quoted is not None:
        end = quoted.end_mark.line + 1
        return quoted.start_mark, (
            f"the quote that opens here is closed only on line {end}, where more text follows; "
            "close it where the text ends"
        )
    is_flow = "parsing a flow sequence" in what or "parsing a flow mapping" in what
    opened = error.context_mark if is_flow else bracket if "<stream end>" in what else None
    if opened is not None and opened.line < mark.line:
        is_mapping = "flow mapping" in what or text[opened.index : opened.index + 1] == "{"
        pair = "{ with }" if is_mapping else "[ with ]"
        return opened, (
            f"what opens here is still open on line {mark.line + 1}; close {pair}, and put a "
            "comma between values"
        )
    above = _lines_above(text, mark)
    before = _before(text, mark)
    if "mapping values are not allowed" in what and (tab := _TAB_AFTER_DASH.match(before)):
        at = yaml.Mark(mark.name, 0, mark.line, tab.end() - 1, None, 0)
        return at, "a tab stands between the dash and a key; type a space"
    is_first_key = not _KEY_BEFORE.search(before) and not before.lstrip().startswith("- ")
    if "mapping values are not allowed" in what and is_first_key:
        number = _line_without_key(above)
        if number is not None:
            line = above[number]
            column = len(line) - len(line.lstrip())
            at = yaml.Mark(mark.name, 0, number, column, None, 0)
            return at, "this line is no `key: value` (a blank follows the colon)"
    return None


def _open_things(
    text: str, after: yaml.Mark, mark: yaml.Mark
) -> tuple[yaml.ScalarToken | None, yaml.Mark | None]:
    """The quoted text that began earlier and ends on the line of `after`; the open bracket."""
    last = None
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
    is_cause = (
        last is not None
        and last.style in {"'", '"'}
        and last.start_mark.line < last.end_mark.line
        and last.end_mark.line == after.line
    )
    return last if is_cause else None, brackets[-1] if brackets else None


def _line_without_key(above: list[str]) -> int | None:
    """The first of the last lines that hold no key: what the parser took for one text."""
    found = None
    for number in range(len(above) - 1, -1, -1):
        line = above[number].strip()
        if line.startswith("#") or _HAS_KEY.search(line):
            break
        found = number if line else found
        if line.startswith("- "):
            break
    return found


def _before(text: str, mark: yaml.Mark | None) -> str:
    """The mark's line up to the mark."""
    lines = text.splitlines() if mark is not None else []
    return lines[mark.line][: mark.column] if mark is not None and mark.line < len(lines) else ""


def _lines_above(text: str, mark: yaml.Mark | None) -> list[str]:
    return text.splitlines()[: mark.line] if mark is not None else []


def _is_below_item(before: str, above: list[str]) -> bool:
    """Whether an item of a list stands above, before a line further to the left."""
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
    if "mapping values are not allowed" in what and _KEY_BEFORE.search(before):
        return "put quotes around a value that holds a colon, or write | and the text below it"
    if is_item and _is_below_item(before, above):
        return "begin this line in the same column as the item above it"
    if "mapping values are not allowed" in what:
        return "begin this line in the same column as the key above it"
    if "'<scalar>'" in what and before.rstrip().endswith(("'", '"')):
        return (
            "the text goes on after a closing quote: write '' for a quote inside '...', or put "
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
        return "begin this line in the same column as the key that it belongs beside"
    return _WRITE_QUOTED if "<block end>" in what else ""
