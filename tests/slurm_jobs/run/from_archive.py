"""Python that imports our packages from the archive of a snapshot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_in(library: Path, code: str) -> str:
    """Return what a Python prints that imports our packages from this archive."""
    environment = {**os.environ, "PYTHONPATH": str(library)}
    command = [sys.executable, "-c", code]
    return subprocess.check_output(command, cwd="/", env=environment, text=True).strip()
