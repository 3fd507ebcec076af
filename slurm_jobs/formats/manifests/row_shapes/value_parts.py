"""Parts of a message as LLaMA-Factory v1 writes them: `{"type": ..., "value": ...}`.

`Content` in its `v1/utils/types.py` has the text, or the path of the picture, under one key.
"""

from __future__ import annotations

from typing import Any

_KEY_OF_TYPE = {"text": "text", "image_url": "path"}
"""Key that parts of other tools have for the value, by the type. Other types are refused."""


def with_named_value(part: Any) -> Any:
    """Return a part with its value under the key of its type; any other part as it is."""
    if not isinstance(part, dict) or part.get("value") is None:
        return part
    kind = part.get("type")
    key = _KEY_OF_TYPE.get(kind) if isinstance(kind, str) else None
    if key is None or part.get(key) is not None:
        return part
    named = {name: value for name, value in part.items() if name != "value"}
    named[key] = part["value"]
    return named
