"""Plain values as YAML on one line, for messages. PURE."""

from __future__ import annotations

import json
from typing import Any

from slurm_jobs.spec.yaml.reader import read_yaml


def flow_text(value: Any) -> str:
    """Return YAML that is read as `value`; text has quotes only if it needs them."""
    if isinstance(value, dict):
        pairs = (f"{flow_text(key)}: {flow_text(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow_text, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    read = read_yaml(f"[{value}]", "")
    is_plain = not read.problems and read.value == [value]
    return value if is_plain else json.dumps(value, ensure_ascii=False)
