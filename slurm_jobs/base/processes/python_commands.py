"""Commands for this Python that load no module from the current folder.

Python 3.11 has `-P` for that, and its own child processes (multiprocessing) inherit it. Python
3.10 has not: there our scripts first remove their own folder from `sys.path`.
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
    """Return the command of a script that removes its folder from `sys.path` if necessary."""
    return [sys.executable, *_SAFE_PATH, str(script), *map(str, words)]


def module_command(name: str, *words: Path | str) -> list[str]:
    """Return `python -m name` without the working folder on `sys.path`."""
    if _SAFE_PATH:
        return [sys.executable, *_SAFE_PATH, "-m", name, *map(str, words)]
    return [sys.executable, "-c", _RUN_MODULE.format(name=name), *map(str, words)]
