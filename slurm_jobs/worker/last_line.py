"""Last line of a failed rank's log, for the record of how the rank ended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from slurm_jobs.base.redact import hidden_text, known_secrets
from slurm_jobs.base.regular_files import open_regular
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.base.written_values import printable

MAX_LAST_LINE_CHARS = 300
_END_BYTES = 16 * 1024
"""End of the log that is searched. A line that begins before it is not recorded, because a secret
is recognised by the name in front of it."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours, and movements of the cursor."""


def read_last_line(log: Path, environment: Mapping[str, str]) -> str | None:
    """Return the last line of a log that is not blank, with secrets hidden; None if there is none.

    Of a progress bar it is the last state. The values of secret variables in `environment` are
    hidden, too.
    """
    data, is_cut = b"", False
    with suppress(OSError), open_regular(log) as stream:
        size = stream.seek(0, os.SEEK_END)
        is_cut = size > _END_BYTES
        stream.seek(max(0, size - _END_BYTES))
        data = stream.read()
    text = _ESCAPES.sub("", data.decode(errors="replace").replace("\r", "\n"))
    lines = text.split("\n")
    for line in reversed(lines[1:] if is_cut else lines):
        if line.strip():
            shown = hidden_text(line.strip(), known_secrets(dict(environment)))
            return printable(truncated(shown, MAX_LAST_LINE_CHARS))
    return None
