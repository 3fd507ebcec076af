"""What looks like a secret, and how it is shown instead: the one place of this rule. PURE.

A name looks like a secret if it contains TOKEN (but for TOKENIZE and its kin), SECRET, PASSWORD,
PASSWD, PASSPHRASE or CREDENTIAL, an API_KEY, ACCESS_KEY, PRIVATE_KEY or the like, or one of the
words PASS, PWD, PAT, AUTH, AUTHORIZATION, in any case. It errs towards hiding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

NOT_SHOWN = "(not shown)"
MIN_KNOWN_CHARS = 4
"""A shorter secret is not looked for in other texts: it would be found in half the words."""

_SECRET_NAME = re.compile(
    r"TOKEN(?!I[ZS])|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(API|ACCESS|ACCOUNT|AUTH|ENCRYPTION|LICENSE|MASTER|PRIVATE|SERVICE|SIGNING|SSH|STORAGE)"
    r"[-_]?KEY|(?<![A-Z0-9])(PASS|PWD|PAT|AUTH|AUTHORIZATION)(?![A-Z0-9])",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?<![\w.-])(?:"
    r"(?P<name>[\w.-]+)[\"']?\s*(?P<sign>\+?[=:]=?)\s*(?:(?:Bearer|Basic|Token)\s+)?"
    r"|(?P<option>--?[A-Za-z][\w.-]*)(?:[ \t]|\\\n)+(?=[^\s-]))",
    re.IGNORECASE,
)
"""`NAME=`, `"NAME": `, `--name=` or `--name `, up to the value."""
_WORDS = {
    "": re.compile(r"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\s\"'\\])+", re.DOTALL),
    "'": re.compile(r"(?:'\\''|\"(?:\\.|[^\"\\'])*\"|\\.|[^\s\"'\\])+", re.DOTALL),
    '"': re.compile(r"(?:\\\"[^\"\\]*\\\"|'[^\"']*'|\\.|[^\s\"'\\])+", re.DOTALL),
}
"""A shell's word with the quotes inside it, by the quote within which it stands."""
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|(?:'[^']*')+", re.DOTALL)
"""Text in quotes as JSON and YAML have it."""
_QUOTE_OR_LINE = re.compile(r"\\?[\"'\n]")
_AFTER_A_WORD = ",;&|)}]>"
"""Not of the word, where one of these ends it."""
_FROM_ELSEWHERE = re.compile(r"[\\\"]*(\$(?![\"'])|`)")
"""Begins a value that only says where the secret comes from."""
_USER_OPTIONS = ("-u", "--user", "--proxy-user")
_URL_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<user>[^/\s'\"]*)@")


def looks_secret(name: str) -> bool:
    """Whether a variable or key of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def without_url_users(text: str) -> str:
    """`text` with `user:password@` taken out of its URLs; the user of an ssh URL is no secret."""

    def strip(match: re.Match[str]) -> str:
        scheme, user = match["scheme"], match["user"]
        if "ssh" in scheme.lower():
            return f"{scheme}{user.partition(':')[0]}@"
        return scheme

    return _URL_USER.sub(strip, text)


def hidden_text(text: str, known: Collection[str] = ()) -> str:
    """`text` without what looks like a secret in it.

    That is the value of `NAME=value`, `NAME: value` and `--NAME value` with such a name (a value
    that begins with `$` only says where it comes from), the `user:password` of curl's `-u`, the
    users of URLs, and the `known` secrets. A value is a whole word of the shell; of a quote that
    is never closed, the rest of the line.
    """
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, NOT_SHOWN)
    kept: list[str] = []
    position, quote = 0, ""
    while name := _NAME.search(text, position):
        kept.append(text[position : name.end()])
        quote = _open_quote(kept[-1], quote)
        position = _value_end(text, name, quote)
        if position > name.end():
            kept.append(NOT_SHOWN)
    return without_url_users("".join(kept) + text[position:])


def _open_quote(text: str, quote: str) -> str:
    """The quote that is open after `text`, if `quote` was before; a new line begins without."""
    for mark in _QUOTE_OR_LINE.findall(text):
        if mark[-1] == "\n" or mark == quote or (mark == "\\'" and quote == "'"):
            quote = ""
        elif not quote and len(mark) == 1:
            quote = mark
    return quote


def _value_end(text: str, name: re.Match[str], quote: str) -> int:
    """Where a secret ends that begins after `name`; the end of the name if there is none."""
    start = name.end()
    is_user = name["option"] in _USER_OPTIONS
    if not (is_user or looks_secret(name["name"] or name["option"])):
        return start
    end = _word_end(text, start, ":" in (name["sign"] or ""), quote)
    value = text[start:end]
    if is_user:
        _, colon, password = value.partition(":")
        is_secret = colon and not password.startswith("//") and not _FROM_ELSEWHERE.match(password)
        return end if is_secret else start
    if text[name.start() - 1 : name.start()] in {"?", "&"}:  # a query: the next key begins at &
        end = start + len(value.partition("&")[0])
    return start if value.startswith(NOT_SHOWN) or _FROM_ELSEWHERE.match(value) else end


def _word_end(text: str, start: int, is_mapping: bool, quote: str) -> int:
    first = text[start : start + 1]
    if text.startswith(NOT_SHOWN, start):
        return start + len(NOT_SHOWN)
    if is_mapping and first in {"{", "["}:
        return _line_end(text, start)
    is_quoted = first in {"'", '"'}
    if is_mapping and is_quoted:
        word = _QUOTED.match(text, start)
    else:
        word = _WORDS["" if first == quote else quote].match(text, start)
    if word is None:
        return _line_end(text, start) if is_quoted else start
    return start + len(word[0].rstrip(_AFTER_A_WORD))


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def hidden_setting(word: str) -> str:
    """A word of a command line: `stages.a.environment.HF_TOKEN=abc def`, also after `--set=`."""
    name, equals, value = word.partition("=")
    if equals and " " not in name and looks_secret(name):
        return f"{name}={NOT_SHOWN}"
    if equals and name.startswith("--"):
        return f"{name}={hidden_setting(value)}"
    return hidden_text(word)


def hidden_values(value: Any, known: Collection[str] = ()) -> Any:
    """JSON values as they may be shown: no text under a secret's name, others as `hidden_text`."""
    if isinstance(value, Mapping):
        return {
            key: _all_hidden(entry) if looks_secret(str(key)) else hidden_values(entry, known)
            for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [hidden_values(entry, known) for entry in value]
    return hidden_text(value, known) if isinstance(value, str) else value


def _all_hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _all_hidden(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_all_hidden(entry) for entry in value]
    return NOT_SHOWN if isinstance(value, str) and value else value


def known_secrets(value: Any) -> frozenset[str]:
    """The texts that stand under a secret's name somewhere in JSON values, but for short ones."""
    return frozenset(text for text in _secrets(value) if len(text) >= MIN_KNOWN_CHARS)


def _secrets(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _secrets(entry, is_secret=is_secret or looks_secret(str(key)))
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _secrets(entry, is_secret=is_secret)
    elif isinstance(value, str) and is_secret:
        yield value
