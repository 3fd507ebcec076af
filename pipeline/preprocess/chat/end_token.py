"""Token at which generation stops, in the files of a processor folder."""

from __future__ import annotations

import json

from slurm_jobs.base.files import dump_json

END_TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Files of a folder that name its `eos_token`; the second, of older folders, has priority."""


def with_end_token(data: bytes, token: str) -> bytes:
    """Return one of these files with this `eos_token`, if it names one at all."""
    values = json.loads(data)
    named = values.get("eos_token")
    content = named.get("content") if isinstance(named, dict) else named
    if content in (None, token):
        return data
    return dump_json({**values, "eos_token": token}).encode()
