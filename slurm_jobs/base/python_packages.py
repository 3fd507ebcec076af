"""Packages of a Python, from the names of their metadata folders.

It needs one listing of each folder on the path and opens no file. `importlib.metadata` would
access a slow shared file system three hundred times. The form of the names is that of the
packaging specifications ("Recording installed projects"), and of setuptools for `.egg-info`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

_METADATA = re.compile(
    r"(?P<name>.+?)-(?P<version>\d[^-]*)(?:-py\d[\d.]*(?:-.+)?)?\.(?:dist|egg)-info"
)


def normalized(name: str) -> str:
    """Return a package's name as pip compares it: `Ruamel.YAML` is `ruamel-yaml`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages(folders: Iterable[str]) -> Mapping[str, str]:
    """Return package versions by name in `folders`; as for imports, the first folder wins.

    A folder that cannot be listed holds none.
    """
    versions: dict[str, str] = {}
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - only the names are needed
        except OSError:
            continue
        for match in filter(None, map(_METADATA.fullmatch, sorted(names))):
            versions.setdefault(normalized(match["name"]), match["version"])
    return dict(sorted(versions.items()))
