"""Writes the pages that are made from the code: commands, Python API, records.

python docs/tools/make_reference.py           write
python docs/tools/make_reference.py --check   exit with 1 if a page is out of date

The reference of the spec is made by docs/tools/make_spec_reference.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import reference_api
import reference_commands
import reference_records

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
MARK = "<!-- Made by docs/tools/make_reference.py; change the code instead. -->\n\n"
PAGES = {
    "api.md": reference_api.page,
    "options.md": reference_commands.page,
    "records.md": reference_records.page,
}


def main() -> int:
    """Write, or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    texts = {REFERENCE / name: MARK + make() for name, make in PAGES.items()}
    stale = [
        path
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if not is_check:
            path.write_text(texts[path], encoding="utf-8")
        print(f"docs/reference/{path.name} {'is out of date' if is_check else 'written'}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
