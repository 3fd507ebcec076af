"""Write constraints.txt anew from what pip resolved on two Pythons: `make constraints`.

    python .ci/make_constraints.py CONSTRAINTS NEWER_LIST OLDEST_LIST

A package that the oldest supported Python gets in another version has a line for each of them.
The comments at the head of CONSTRAINTS stay.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

OLD = 'python_version < "3.11"'
NEW = 'python_version >= "3.11"'


def pins(path: Path) -> dict[str, tuple[str, str]]:
    """Name as it is written and version, by normalised name, of `pip list --format=freeze`."""
    found = {}
    for line in path.read_text().splitlines():
        name, is_pin, version = line.partition("==")
        if not is_pin:
            message = f"{path}: {line}: no release of an index"
            raise SystemExit(message)
        # torch stands without its build suffix: CPU and CUDA builds both satisfy it.
        found[re.sub(r"[-_.]+", "-", name).lower()] = (name, re.sub(r"\+.*", "", version))
    return found


def merged(newer: dict[str, tuple[str, str]], oldest: dict[str, tuple[str, str]]) -> list[str]:
    """The lines; what only the oldest needs (backports, CUDA's libraries) is left free."""
    lines = []
    for key, (name, version) in sorted(newer.items()):
        _, old_version = oldest.get(key, (name, version))
        if old_version == version:
            lines.append(f"{name}=={version}")
        else:
            lines.append(f"{name}=={version}; {NEW}")
            lines.append(f"{name}=={old_version}; {OLD}")
    return lines


def main() -> None:
    """Rewrite the file."""
    constraints, newer, oldest = map(Path, sys.argv[1:])
    head = [li for li in constraints.read_text().splitlines() if li.startswith("#")]
    lines = [*head, *merged(pins(newer), pins(oldest))]
    constraints.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
