"""Marks of other tools for pictures, videos and sounds within a text; only `<image>` is read.

A mark is a name in brackets that consists of words for media and of words for places in a prompt,
in any combination: `<vid>`, `<|imgpad|>`, `[IMG_0]`, `<fake_token_around_image>`. Names with any
other word are not marks, because texts have them for other reasons: `<image_url>`, `<video-js>`.
"""

from __future__ import annotations

import re

_MEDIA = (
    "images?|imgs?|pictures?|pics?|photos?|videos?|vids?|audios?|speech|sounds?|vision|visual|vis"
    "|media|clips?|frames?"
)
_PLACE = (
    "placeholder|tokens?|context|ctx|soft|pad|patch|start|begin|end|bos|eos|of|here|fake|around"
    "|global|local|features?|feat|embeddings?|embed|break|newline|sep|slot|tile|thumbnail"
)
_NAME = rf"(?:(?:{_PLACE})[ _-]?){{0,4}}(?:{_MEDIA})(?:{_MEDIA}|{_PLACE}|[0-9 _:.#-]){{0,12}}"
_JOINED = rf"(?:{_PLACE}|[0-9]{{1,6}})"
_MARK = re.compile(
    rf"<\s*(bbox|ref-object|im_(?:patch|start|end)|{_NAME})\s*/?>"
    rf"|<\|{_NAME}\|>"
    rf"|\[(?-i:(?:{_MEDIA.upper()})(?:_(?:{_PLACE.upper()})|_?[0-9]{{1,6}})+)\]"
    rf"|\[(?:{_MEDIA})(?:_{_JOINED})+\]|\[img\]",
    re.IGNORECASE,
)
_HTML_TAGS = frozenset({"video", "audio", "img", "image", "picture", "frame"})
_USER_MARK = re.compile(
    r"(?<!!)\[(?:image|picture|photo|video|audio)\](?![(\[:])"
    rf"|\{{\{{?\s*(?:{_MEDIA})(?:[ _-]?[0-9]{{1,6}})?\s*\}}\}}?",
    re.IGNORECASE,
)
"""Marks of templates that count only in texts of the user."""
_CODE = re.compile(
    r"```|\b(?:x?html5?|css|jsx|react|vue|javascript|python|f-string)\b", re.IGNORECASE
)
_TAG_WORD = r"(?:tags?|elements?|attributes?|components?)"
_OTHER_TAGS = r"(?:[\s,/]|\band\b|\bor\b|\bhtml5?\b|<\w+>)*"
_TAG_BEFORE = re.compile(rf"\b{_TAG_WORD}\b{_OTHER_TAGS}$", re.IGNORECASE)
_TAG_AFTER = re.compile(rf"{_OTHER_TAGS}\b{_TAG_WORD}\b", re.IGNORECASE)


def foreign_mark(text: str, *, has_images: bool, is_users: bool) -> str | None:
    """Return a mark for unread media in a text; None if there is none.

    `<video>`, `<audio>`, `<picture>` and `<Image>` are words about HTML, too. They count as marks
    if no end tag follows and a line begins or ends with them. In a text of the user they count also
    elsewhere, unless the text is about code.
    """
    for match in _MARK.finditer(text) if "<" in text or "[" in text else ():
        name = (match[1] or "").rstrip(" /")
        is_closed = f"</{name}>" in text or f"[/{match[0][1:]}" in text
        if name.lower() not in _HTML_TAGS:
            is_mark = not is_closed
        elif name.lower() == "img":
            is_mark = has_images or "</img>" in text
        else:
            is_mark = not is_closed and _is_mark(text, match, is_users=is_users)
        if is_mark:
            return match[0]
    if is_users and not _CODE.search(text):
        mark = _USER_MARK.search(text)
        if mark:
            return mark[0]
        if "</image>" in text and "<image" not in text:  # MiniCPM's `(<image>./</image>)`
            return "</image>"
    return None


def _is_mark(text: str, match: re.Match[str], *, is_users: bool) -> bool:
    """Check whether a name of HTML is a mark: at an end of its line, or in words of a user."""
    before, after = text[: match.start()], text[match.end() :]
    start = _MARK.sub("", before.rpartition("\n")[2]).replace("<image>", "")
    if not start.strip() or not after.partition("\n")[0].strip():
        return True
    is_quoted = before[-1:] in ("`", '"', "'") and after[:1] == before[-1:]
    is_tag = _TAG_BEFORE.search(before) or _TAG_AFTER.match(after)
    return is_users and not (is_quoted or is_tag or _CODE.search(text))
