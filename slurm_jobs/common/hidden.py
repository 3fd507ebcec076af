"""What looks like a secret, and how it is shown instead: the one place of this rule. PURE.

A name looks like a secret if it contains TOKEN (but for TOKENIZE and its kin, and for what counts
or names tokens of a text), SECRET, PASSWORD, PASSWD, PASSPHRASE or CREDENTIAL, an API_KEY,
ACCESS_KEY, PRIVATE_KEY, OPENAI_KEY or the like, a DBPASS, or one of the words PASS, PWD, PAT, AUTH,
AUTHORIZATION, SIG, SIGNATURE (as signed URLs have them), in any case; or if it is written in
capitals and ends in _KEY, as a variable's is. It errs towards hiding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

NOT_SHOWN = "(not shown)"
MIN_KNOWN_CHARS = 4
"""A shorter secret is not looked for in other texts: it would be found in half the words."""

_SECRET_NAME = re.compile(
    r"TOKEN(?!I[ZS])|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(API|ACCESS|ACCOUNT|AUTH|ENCRYPTION|LICENSE|MASTER|PRIVATE|SERVICE|SIGNING|SSH|STORAGE"
    r"|ANTHROPIC|AWS|AZURE|COHERE|COMET|DEPLOY|GEMINI|GITHUB|GITLAB|HF|HMAC|JWT|MISTRAL|NEPTUNE"
    r"|OPENAI|OPENROUTER|REPLICATE|WANDB)[-_]?KEY"
    r"|(?-i:(?<![A-Za-z0-9])[A-Z][A-Z0-9_]*(?<!PUBLIC)(?<!PRIMARY)(?<!SORT)(?<!CACHE)_KEY"
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
"""Of names that have to do with the tokens of a text, and with no secret."""
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
"""A shell's word with the quotes inside it, by the quote within which it stands."""
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|(?:'[^']*')+", re.DOTALL)
"""Text in quotes as JSON and YAML have it."""
_QUOTE_OR_LINE = re.compile(r"\\?[\"'\n]")
_AFTER_A_WORD = ",;&|)}]>"
"""Not of the word, where one of these ends it."""
_FROM_ELSEWHERE = re.compile(r"[\\\"]*(\$(?![\"'])|`)")
"""Begins a value that only says where the secret comes from."""
_WRITTEN_OUT = re.compile(
    r"[\\\"]*(?:(?:\$\(|`)(?:[^)`\n]{0,200}[\s;&|/])?(?:(?:echo|printf)\s|<<<)"
    r"|\$\{\w+:?[-=+](?!\"?[$`}]))"
)
"""Begins one that does not: `$(echo abc)`, `${NAME:-abc}`."""
_USER_OPTIONS = ("-u", "--user", "--proxy-user")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_PAIR_NAMES = ("name", "key", "variable")
"""Keys under which a mapping has the name of its own `value`."""
_URL_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<user>[^/\s'\"]*)@")


def looks_secret(name: str) -> bool:
    """Whether a variable or key of this name is likely to hold a secret."""
    return _SECRET_NAME.search(_TEXT_TOKENS.sub("", name)) is not None


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

    That is the value of `NAME=value`, `NAME: value`, `--NAME value` and `setenv NAME value` with
    such a name (a value that begins with `$` only says where it comes from, but for `$(echo abc)`
    and `${X:-abc}`), the `user:password` of curl's `-u`, the
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
    is_user = name["option"] in _USER_OPTIONS or name["joined"] is not None
    if not is_user and not looks_secret(name["name"] or name["variable"] or name["option"]):
        return start
    if name["listing"]:  # of several parameters, some in quotes
        end = _line_end(text, start)
        return max(start, text.rfind(quote, start, end)) if quote else end
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
    """Whether the value says where the secret comes from, and not what it is."""
    return bool(_FROM_ELSEWHERE.match(value)) and not _WRITTEN_OUT.match(value)


def _has_password(value: str) -> bool:
    """Whether the value of curl's `-u` is `user:password`, written out."""
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
    """A word of a command line: `stages.a.environment.HF_TOKEN=abc def`, also after `--set=`.

    A value that is a list or mapping in YAML is hidden as the spec's are.
    """
    name, equals, value = word.partition("=")
    if equals and " " not in name and looks_secret(name):
        return f"{name}={NOT_SHOWN}"
    if equals and name.startswith("--"):
        return f"{name}={hidden_setting(value)}"
    if equals and value.lstrip()[:1] in {"[", "{"}:
        return f"{name}={_hidden_yaml(value)}"
    return hidden_text(word)


def _hidden_yaml(text: str) -> str:
    """A list or mapping in YAML as it may be shown; as JSON if anything of it is hidden."""
    import yaml

    try:
        value = yaml.safe_load(text)
        hidden = hidden_values(value)
        return text if hidden == value else json.dumps(hidden, ensure_ascii=False, default=str)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return hidden_text(text)


def hidden_values(value: Any, known: Collection[str] = ()) -> Any:
    """JSON values as they may be shown: no text under a secret's name, others as `hidden_text`.

    Under such a name is also the item of a list after `--NAME`, and the `value` of a mapping that
    has the name as its `name`.
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
    """Whether this item of a command line is the secret that the items before it announce."""
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
