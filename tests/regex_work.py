"""The work of a regular expression, counted in steps: the same on every machine.

`count_steps` matches as Python does, by trying and going back, and counts each node that it tries
at a place of the text. Where Python is quicker, it is so by a constant. `attacks` makes texts of
what a pattern itself asks for, repeated, with an end at which the match fails.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, permutations
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as names
    from re import _parser as parser
else:
    import sre_constants as names
    import sre_parse as parser

_End = Callable[[int], bool]
_CATEGORIES = {
    names.CATEGORY_DIGIT: (r"\d", True),
    names.CATEGORY_NOT_DIGIT: (r"\d", False),
    names.CATEGORY_SPACE: (r"\s", True),
    names.CATEGORY_NOT_SPACE: (r"\s", False),
    names.CATEGORY_WORD: (r"\w", True),
    names.CATEGORY_NOT_WORD: (r"\w", False),
}
_ONE_CHARACTER = (names.LITERAL, names.NOT_LITERAL, names.IN, names.ANY)


class TooManyStepsError(Exception):
    """The limit of steps is reached."""


class _Matcher:
    def __init__(self, pattern: re.Pattern[str], text: str, limit: int) -> None:
        self.text = text
        self.flags = pattern.flags
        self.num_steps = 0
        self._limit = limit
        self._groups: dict[int, tuple[int, int]] = {}

    def _step(self) -> None:
        self.num_steps += 1
        if self.num_steps > self._limit:
            raise TooManyStepsError

    def match(self, nodes: Any, index: int, at: int, end: _End) -> bool:
        """Match the nodes from `index` on at `at`; `end` is tried where they end."""
        if index == len(nodes):
            return end(at)
        self._step()
        kind, value = nodes[index]

        def rest(place: int) -> bool:
            return self.match(nodes, index + 1, place, end)

        if kind in _ONE_CHARACTER:
            return self._is_one(kind, value, at) and rest(at + 1)
        if kind is names.BRANCH:
            return any(self.match(branch, 0, at, rest) for branch in value[1])
        if kind is names.SUBPATTERN:
            return self._group(value, at, rest)
        if kind in (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT):
            return self._repeat(kind, value, at, rest)
        if kind is names.ATOMIC_GROUP:
            return (place := self.end_of(value, at)) is not None and rest(place)
        if kind in (names.ASSERT, names.ASSERT_NOT):
            return self._looks(value, at) == (kind is names.ASSERT) and rest(at)
        if kind is names.AT:
            return self._is_at(value, at) and rest(at)
        if kind is names.GROUPREF:
            start, stop = self._groups.get(value, (0, -1))
            same = stop >= 0 and self.text.startswith(self.text[start:stop], at)
            return same and rest(at + stop - start)
        message = f"{kind} is not counted"
        raise NotImplementedError(message)

    def _is_one(self, kind: Any, value: Any, at: int) -> bool:
        if at >= len(self.text):
            return False
        return _accepts(kind, value, self.text[at], self.flags)

    def _group(self, value: Any, at: int, rest: _End) -> bool:
        number, added, removed, nodes = value
        before = self.flags

        def after(place: int) -> bool:
            inner, self.flags = self.flags, before
            if number is not None:
                self._groups[number] = (at, place)
            if rest(place):
                return True
            self.flags = inner
            return False

        self.flags = (before | added) & ~removed
        matched = self.match(nodes, 0, at, after)
        self.flags = before
        return matched

    def end_of(self, nodes: Any, at: int, *, is_whole: bool = False) -> int | None:
        """Return the end of the first match at `at`, which `is_whole` up to the text's end."""
        ends: list[int] = []

        def end(place: int) -> bool:
            if is_whole and place < len(self.text):
                return False
            ends.append(place)
            return True

        self.match(nodes, 0, at, end)
        return ends[0] if ends else None

    def _repeat(self, kind: Any, value: Any, at: int, rest: _End) -> bool:
        least, most, nodes = value
        most = len(self.text) + 1 if most is names.MAXREPEAT else most
        if len(nodes) == 1 and nodes[0][0] in _ONE_CHARACTER:
            ends = self._ends_of_run(nodes[0], at, most)
            if kind is names.MIN_REPEAT:
                return any(rest(place) for i, place in enumerate(ends) if i >= least)
            places = list(ends)[least:]
            if kind is names.POSSESSIVE_REPEAT:
                return bool(places) and rest(places[-1])
            return any(self._counted(rest, place) for place in reversed(places))

        def again(num: int, place: int, before: int) -> bool:
            if num >= least and (place == before or num >= most):
                return rest(place)
            if kind is names.MIN_REPEAT and num >= least and rest(place):
                return True
            more = self.match(nodes, 0, place, lambda after: again(num + 1, after, place))
            return more or (kind is not names.MIN_REPEAT and num >= least and rest(place))

        return again(0, at, -1)

    def _counted(self, rest: _End, place: int) -> bool:
        self._step()
        return rest(place)

    def _ends_of_run(self, node: Any, at: int, most: int) -> Iterator[int]:
        yield at
        for place in range(at, at + most):
            self._step()
            if not self._is_one(*node, place):
                return
            yield place + 1

    def _looks(self, value: Any, at: int) -> bool:
        direction, nodes = value
        if direction < 0:
            at -= nodes.getwidth()[0]
        return at >= 0 and self.match(nodes, 0, at, lambda _: True)

    def _is_at(self, where: Any, at: int) -> bool:
        text, is_line = self.text, bool(self.flags & re.MULTILINE)
        if where in (names.AT_BEGINNING, names.AT_BEGINNING_STRING):
            return at == 0 or (is_line and where is names.AT_BEGINNING and text[at - 1] == "\n")
        if where is names.AT_END_STRING:
            return at == len(text)
        if where is names.AT_END:
            return at in (len(text), len(text.removesuffix("\n"))) or (is_line and text[at] == "\n")
        around = text[at - 1 : at], text[at : at + 1]
        is_boundary = len({bool(re.fullmatch(r"\w", c)) for c in around}) == 2
        return is_boundary == (where is names.AT_BOUNDARY)


@functools.cache
def _class_of(kind: Any, value: Any, flags: int) -> re.Pattern[str]:
    """Python's own pattern of one character."""
    state = parser.State()
    state.str = ""
    nodes = parser.SubPattern(state, [(kind, list(value) if kind is names.IN else value)])
    compiler = re._compiler if sys.version_info >= (3, 11) else __import__("sre_compile")
    code = compiler._code(nodes, flags)
    return compiler._sre.compile("", flags, code, 0, {}, ())


@functools.cache
def _accepts_cached(kind: Any, value: Any, character: str, flags: int) -> bool:
    return _class_of(kind, value, flags).fullmatch(character) is not None


def _accepts(kind: Any, value: Any, character: str, flags: int) -> bool:
    return _accepts_cached(kind, tuple(value) if kind is names.IN else value, character, flags)


@functools.cache
def _parse(text: str, flags: int) -> Any:
    return parser.parse(text, flags & ~re.DEBUG)


def count_steps(
    pattern: re.Pattern[str], text: str, method: str, limit: int, *, start: int = 0
) -> int:
    """Count the steps of a method of `pattern`: `match`, `fullmatch`, `search` or `sub`.

    Raises:
        TooManyStepsError: there are more than `limit`.
    """
    nodes = _parse(pattern.pattern, pattern.flags)
    matcher = _Matcher(pattern, text, limit)
    recursion = sys.getrecursionlimit()
    sys.setrecursionlimit(max(recursion, 40 * len(text) + 10_000))
    try:
        at = start
        while at <= len(text):
            end = matcher.end_of(nodes, at, is_whole=method == "fullmatch")
            if method in ("match", "fullmatch") or (end is not None and method == "search"):
                break
            at = at + 1 if end is None else max(at + 1, end)
    finally:
        sys.setrecursionlimit(recursion)
    return matcher.num_steps


def attacks(pattern: re.Pattern[str], num: int) -> Iterator[str]:
    """Yield texts of about `num` characters of which the pattern's parts match many."""
    nodes = _parse(pattern.pattern, pattern.flags)
    words = [word for word in dict.fromkeys(_samples(nodes, pattern.flags)) if word]
    single = [c for c in _LIKELY if _is_mentioned(nodes, c, pattern.flags)]
    pairs = [first + second for first, second in permutations(single[:6], 2)]
    for word in dict.fromkeys([*words[:12], *single, *pairs]):
        repeated = word * (num // len(word))
        yield repeated + "\x00"
        if word in words:
            yield from (start + repeated for start in ("", *words[:2]))
    for first, second in pairwise(words[:12]):
        yield (first + second) * (num // len(first + second)) + "\x00"


def _is_mentioned(nodes: Any, character: str, flags: int) -> bool:
    """Check whether one of the pattern's single characters is this one; `.` does not count."""
    for kind, value in nodes:
        if kind in (names.LITERAL, names.IN):
            if _accepts(kind, value, character, flags):
                return True
        elif any(_is_mentioned(part, character, flags) for part in _parts(value)):
            return True
    return False


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, parser.SubPattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _parts(part)


def _samples(nodes: Any, flags: int) -> list[str]:
    """Return short texts: of the whole, of its repeated parts, and of all others."""
    whole, parts = _sample(nodes, flags)
    return [*sorted(parts, key=len), whole]


def _sample(nodes: Sequence[Any], flags: int) -> tuple[str, list[str]]:
    whole, parts = "", []
    for kind, value in nodes:
        text = ""
        if kind in _ONE_CHARACTER:
            text = next((c for c in _LIKELY if _accepts(kind, value, c, flags)), "")
            text = chr(value) if kind is names.LITERAL else text
        elif kind is names.BRANCH:
            for branch in value[1]:
                text, more = _sample(branch, flags)
                parts += [text, *more]
        elif kind is names.SUBPATTERN:
            text, more = _sample(value[3], (flags | value[1]) & ~value[2])
            parts += more
        elif kind in (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT):
            text, more = _sample(value[2], flags)
            parts += [text, *more]
            text *= max(1, value[0])
        elif kind is names.ATOMIC_GROUP:
            text, more = _sample(value, flags)
            parts += more
        whole += text
        parts.append(whole)
    return whole, parts


_LIKELY = "aA1_ \t\n.-/:,;'\"\\()[]{}<>=@#$%&*+?|~^!`"
