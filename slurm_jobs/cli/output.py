"""The console that verbs print tables on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_PIPE = 160


def console() -> Console:
    """As wide as the terminal; wide enough for whole lines where the output goes to a file."""
    from rich.console import Console

    found = Console()
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return Console(width=WIDTH_OF_A_PIPE)
