"""Redaction of secrets: which values look like one, and how they are shown. PURE.

A name looks like a secret if it contains one of these in any case: TOKEN (except TOKENIZE and
related words, and counts or names of text tokens); SECRET, PASSWORD, PASSWD, PASSPHRASE or
CREDENTIAL; API_KEY, ACCESS_KEY, PRIVATE_KEY, OPENAI_KEY or similar; DBPASS; or one of the words
PASS, PWD, PAT, AUTH, AUTHORIZATION, SIG, SIGNATURE (as in signed URLs). A name in capitals, which
is a variable's, also looks like a secret if it ends in _KEY. So does any name of more than
`MAX_NAME_CHARS`. If it is unclear whether a value is a secret, the value is hidden.

Texts come from logs and from runs of others. Each pattern reads a character a bounded number of
times, whatever the text: no repeat begins again within the characters of another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

NOT_SHOWN = "(not shown)"
MIN_KNOWN_CHARS = 4
"""Length from which a secret is searched for in other texts: a shorter one would match many words.
"""

MAX_NAME_CHARS = 256
"""Length above which a name counts as a secret's, without being read."""
MAX_KNOWN = 200
"""Number of secrets above which a text is hidden whole, because each is searched for in it."""

_SECRET_NAME = re.compile(
    r"TOKEN(?!I[ZS])|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(API|ACCESS|ACCOUNT|AUTH|ENCRYPTION|LICENSE|MASTER|PRIVATE|SERVICE|SIGNING|SSH|STORAGE"
    r"|ANTHROPIC|AWS|AZURE|COHERE|COMET|DEPLOY|GEMINI|GITHUB|GITLAB|HF|HMAC|JWT|MISTRAL|NEPTUNE"
    r"|OPENAI|OPENROUTER|REPLICATE|WANDB)[-_]?KEY"
    r"|(?-i:(?<![A-Za-z0-9])[A-Z0-9]+(?<!PUBLIC)(?<!PRIMARY)(?<!SORT)(?<!CACHE)_+KEY"
    r"(?![A-Za-z0-9_]))"
    r"|(ADMIN|DB|FTP|LDAP|MAIL|MONGO|PG|PROXY|REDIS|ROOT|SMTP|SQL|USER)(PASS|PWD)(?![A-Z0-9])"
    r"|(?<![A-Z0-9])(PASS|PWD|PAT|AUTH|AUTHORIZATION|SIG|SIGNATURE)(?![A-Z0-9])",
    re.IGNORECASE,
)
_TEXT_TOKENS = re.compile(
    r"(?<![A-Z0-9])((MAX|MEAN|MIN|NUM|TOTAL)[-_](\w{1,20}[-_])?TOKENS"
    r"|(BOS|CLS|EOS|IMAGE|MASK|PAD|SEP|SPECIAL|STOP|UNK)[-_]TOKENS?(?![A-Z0-9])"
    r"|TOKENS?[-_](IDS?|TYPE|PER|COUNTS?|LENGTHS?)(?![A-Z0-9]))",
    re.IGNORECASE,
)
"""Names that relate to the tokens of a text, and not to a secret."""
_NAME = re.compile(
    r"(?<![\w.-])(?:"
    r"(?P<joined>-u|--(?:proxy-)?user=)(?=[\"']?[^\s\"':/]{1,64}:[^\s/$`])"
    r"|(?P<name>[\w.-]+)[\"']?\s*(?P<sign>\+?[=:]=?)\s*"
    r"(?:(?:Bearer|Basic|Token|(?P<listing>AWS4-HMAC-SHA256|Digest|Hawk|OAuth|Signature))\s+)?"
    r"|(?:setenv|set[ \t]+-\w+)[ \t]+(?P<variable>\w+)[ \t]+(?=\S)"
    r"|(?P<option>--?[A-Za-z][\w.-]*)"
    r"(?:(?:[ \t]|\\\n)+(?=[^\s-])|(?P<item>[\"'],[ \t]*)(?=[\"'][^-])))",
    re.IGNORECASE,
)
"""`-u`, `NAME=`, `"NAME": `, `setenv NAME `, `--name ` or `'--name', `, up to the value."""
_WORDS = {
    "": re.compile(
        r"(?:\$\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\$\{[^{}\n]*\}|`[^`\n]*`"
        r"|\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\s\"'\\])+",
        re.DOTALL,
    ),
    "'": re.compile(
        r"(?:\$\([^()\n']*(?:\([^()\n']*\)[^()\n']*)*\)|\$\{[^{}\n']*\}|`[^`\n']*`"
        r"|'\\''|\"(?:\\.|[^\"\\'])*\"|\\.|[^\s\"'\\])+",
        re.DOTALL,
    ),
    '"': re.compile(
        r"(?:\$\([^()\n\"]*(?:\([^()\n\"]*\)[^()\n\"]*)*\)|\$\{[^{}\n\"]*\}|`[^`\n\"]*`"
        r"|\\\"[^\"\\]*\\\"|'[^\"']*'|\\.|[^\s\"'\\])+",
        re.DOTALL,
    ),
}
"""Word of a shell with the quotes inside it, by the quote that surrounds it."""
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|(?:'[^']*')+", re.DOTALL)
"""Text in quotes as JSON and YAML have it."""
_QUOTE_OR_LINE = re.compile(r"\\?[\"'\n]")
_AFTER_A_WORD = ",;&|)}]>"
"""Characters that end a word and do not belong to it."""
_FROM_ELSEWHERE = re.compile(r"[\\\"]*(\$(?![\"'])|`)")
"""Start of a value that only names the source of the secret."""
_WRITTEN_OUT = re.compile(
    r"[\\\"]*(?:(?:\$\(|`)(?:[^)`\n]{0,200}[\s;&|/])?(?:(?:echo|printf)\s|<<<)"
    r"|\$\{\w+:?[-=+](?!\"?[$`}]))"
)
"""Start of a value that contains the secret: `$(echo abc)`, `${NAME:-abc}`."""
_USER_OPTIONS = ("-u", "--user", "--proxy-user")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_PAIR_NAMES = ("name", "key", "variable")
"""Keys under which a mapping has the name of its own `value`."""
_URL_USER = re.compile(
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z0-9+.-]+://)(?P<user>[^/\s'\"]*"
    r"|(?!\[)[^/\s'\":@]*:(?!\d{1,5}[/?#])(?:[^\s'\":]|:(?!//))*)@"
)
"""User of a URL, up to the `@`.

The user usually ends at the last `@` before the first `/` of the path, so an `@` in the path stays.
A password may have a `/` that should be `%2F`. So if there is no such `@`, what follows the first
colon is a password unless it is a port, and ends at the last `@`. Of a password with an `@` before
an unescaped `/` (`me:p@a/s:s@host`), only the part before that `@` is hidden.
"""


def looks_secret(name: str) -> bool:
    """Check whether a variable or key of this name is likely to hold a secret."""
    if len(name) > MAX_NAME_CHARS:
        return True
    return _SECRET_NAME.search(_TEXT_TOKENS.sub("", name)) is not None


def without_url_users(text: str) -> str:
    """Return `text` without `user:password@` in its URLs; the user of an ssh URL is no secret."""

    def strip(match: re.Match[str]) -> str:
        scheme, user = match["scheme"], match["user"]
        if "ssh" in scheme.lower():
            return f"{scheme}{user.partition(':')[0]}@"
        return scheme

    return _URL_USER.sub(strip, text)


def hidden_text(text: str, known: Collection[str] = ()) -> str:
    """Return `text` with everything that looks like a secret replaced.

    Replaced are the value of `NAME=value`, `NAME: value`, `--NAME value` and `setenv NAME value`
    with such a name, the `user:password` of curl's `-u`, the users of URLs, and the `known`
    secrets. A value that begins with `$` only names its source, except `$(echo abc)` and
    `${X:-abc}`. A value is a whole word of the shell; after an unclosed quote it is the rest of the
    line.
    """
    if len(known) > MAX_KNOWN and text:
        return NOT_SHOWN
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, NOT_SHOWN)
    pieces: list[str] = []
    position, quote = 0, ""
    while name := _NAME.search(text, position):
        pieces.append(text[position : name.end()])
        for mark in _QUOTE_OR_LINE.findall(pieces[-1]):
            if mark[-1] == "\n" or mark == quote or (mark == "\\'" and quote == "'"):
                quote = ""  # a new line has no open quote
            elif not quote and len(mark) == 1:
                quote = mark
        position = _value_end(text, name, quote)
        if position > name.end():
            pieces.append(NOT_SHOWN)
    return without_url_users("".join(pieces) + text[position:])


def _value_end(text: str, name: re.Match[str], quote: str) -> int:
    """Return the end of a secret that begins after `name`; the end of the name if there is none."""
    start = name.end()
    is_user = name["option"] in _USER_OPTIONS or name["joined"] is not None
    if not is_user and not looks_secret(name["name"] or name["variable"] or name["option"]):
        return start
    if name["listing"]:  # of several parameters, some in quotes
        end = _line_end(text, start)
        closing = text.rfind(quote, start, end) if quote else -1
        return end if closing < 0 else closing
    is_written_out = _WRITTEN_OUT.match(text, start) is not None
    if not is_user and _FROM_ELSEWHERE.match(text, start) and not is_written_out:
        return start
    is_mapping = ":" in (name["sign"] or "") or name["item"] is not None
    end = _word_end(text, start, is_mapping, quote)
    value = text[start:end]
    if is_user:
        return end if _has_password(value) else start
    if text[name.start() - 1 : name.start()] in {"?", "&"}:  # a query: the next key begins at &
        end = start + len(value.partition("&")[0])
    if is_written_out and not any(mark in value[2:] for mark in ")}`"):
        return _line_end(text, start)  # it is not closed
    return start if value.startswith(NOT_SHOWN) else end


def _is_elsewhere(value: str) -> bool:
    """Check whether the value names the source of the secret, and not the secret itself."""
    return bool(_FROM_ELSEWHERE.match(value)) and not _WRITTEN_OUT.match(value)


def _has_password(value: str) -> bool:
    """Check whether the value of curl's `-u` is a literal `user:password`."""
    _, colon, password = value.partition(":")
    return bool(colon) and not password.startswith("//") and not _is_elsewhere(password)


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
    kept = word[0].rstrip(_AFTER_A_WORD)
    closes_itself = kept[:2] in {"$(", "${"} and kept != word[0]
    return start + len(kept) + closes_itself


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def hidden_setting(word: str) -> str:
    """Redact one word of a command line.

    Examples are `stages.a.environment.HF_TOKEN=abc def`, also after `--set=`. A value that is a
    list or mapping in YAML is redacted as in a spec.
    """
    name, equals, value = word.partition("=")
    if equals and " " not in name and looks_secret(name):
        return f"{name}={NOT_SHOWN}"
    if equals and name.startswith("--"):
        return f"{name}={hidden_setting(value)}"
    if not equals or value.lstrip()[:1] not in {"[", "{"}:
        return hidden_text(word)
    import yaml

    try:
        given = yaml.safe_load(value)
        hidden = hidden_values(given)
        if hidden != given:
            value = json.dumps(hidden, ensure_ascii=False, default=str)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        value = hidden_text(value)
    return f"{name}={value}"


def hidden_values(value: Any, known: Collection[str] = ()) -> Any:
    """Redact JSON values: all text under a secret's name, other text as `hidden_text` does.

    The item of a list after `--NAME` also has such a name, and so has the `value` of a mapping with
    it as `name`.
    """
    if isinstance(value, Mapping):
        is_pair = any(looks_secret(str(value[key])) for key in _PAIR_NAMES if key in value)
        return {
            key: _all_hidden(entry)
            if looks_secret(str(key)) or (is_pair and key == "value")
            else hidden_values(entry, known)
            for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            NOT_SHOWN if _is_argument(value, index) else hidden_values(entry, known)
            for index, entry in enumerate(value)
        ]
    return hidden_text(value, known) if isinstance(value, str) else value


def _is_argument(words: Sequence[Any], index: int) -> bool:
    """Check whether the items before this item of a command line announce a secret."""
    word, before = words[index], words[index - 1] if index else None
    if not (isinstance(word, str) and isinstance(before, str)) or _is_elsewhere(word):
        return False
    if before in _USER_OPTIONS:
        return _has_password(word)
    if index > 1 and words[index - 2] == "setenv":
        return looks_secret(before)
    is_option = _OPTION.fullmatch(before) is not None
    return is_option and word[:1] not in {"", "-"} and looks_secret(before)


def _all_hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _all_hidden(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_all_hidden(entry) for entry in value]
    return NOT_SHOWN if isinstance(value, str) and value else value


def known_secrets(value: Any) -> frozenset[str]:
    """Return the texts under a secret's name anywhere in JSON values, except short ones."""
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
