"""Commands for this very Python that load no module from the folder that they are started in.

Python 3.11 has `-P` for that, which processes that it starts of its own accord (multiprocessing)
inherit. Python 3.10 has not: there our scripts take their own folder off `sys.path` first.
"""

from __future__ import annotations

import sys
from pathlib import Path

_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
_RUN_MODULE = (
    "import sys; del sys.path[0]; import runpy; "
    "runpy.run_module('{name}', run_name='__main__', alter_sys=True)"
)


def script_command(script: Path | str, *words: Path | str) -> list[str]:
    """One of our scripts that takes its folder off `sys.path` itself where it is still there."""
    return [sys.executable, *_SAFE_PATH, str(script), *map(str, words)]


def module_command(name: str, *words: Path | str) -> list[str]:
    """`python -m name`, but for the working folder on `sys.path`."""
    if _SAFE_PATH:
        return [sys.executable, *_SAFE_PATH, "-m", name, *map(str, words)]
    return [sys.executable, "-c", _RUN_MODULE.format(name=name), *map(str, words)]
