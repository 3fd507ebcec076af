r"""Characters that control a terminal, are invisible, or change the writing direction.

Names, reasons and values may come from a manifest, a colleague's files or a program's output.
When printed, or written to a page, each of them is replaced by its code (`\x1b`,
`\u202e`).
"""

from __future__ import annotations

import json
import re

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
)
"""All control characters except tab and newline, invisible characters, and direction marks."""


def plain(text: str) -> str:
    r"""Return the text with each character of `STEERING` as its code, `\x1b`."""
    return STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def escaped_json(text: str) -> str:
    r"""Return JSON with these characters in JSON's form, `\u001b`: its value is the same."""
    return STEERING.sub(lambda match: json.dumps(match[0])[1:-1], text)
