r"""Characters that steer a terminal, hide, or turn the direction of writing. PURE.

Names, reasons and values may come from a manifest, a colleague's files or a program's output. What
is printed, or written to a page, has each such character as its code (`\x1b`, `\u202e`).
"""

from __future__ import annotations

import json
import re

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
)
"""All control characters but tab and newline; what hides, and what turns the writing round."""


def plain(text: str) -> str:
    r"""The text with each steering character as its code, `\x1b`."""
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def plain_json(text: str) -> str:
    r"""JSON with the same characters in JSON's own spelling, `\u001b`: equal when it is read."""
    return STEERING.sub(lambda found: json.dumps(found[0])[1:-1], text)
