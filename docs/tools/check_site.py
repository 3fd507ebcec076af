"""Look at the built site as its readers do: `python docs/tools/check_site.py [FOLDER] [PAGE ...]`.

Opens each page of build/docs/html (`make docs`), or those that are named, in headless Chromium at
the width of a phone and of a desk, light and dark: nothing is wider than the window, and all text
stands out from what is behind it, as `check_page.py` has it. Prints a line for each page with
something wrong, and ends with exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    from docs.check_page import SCHEMES, SCRIPT, probe, problems_of
except ImportError:  # called as a script, from this folder
    from check_page import SCHEMES, SCRIPT, probe, problems_of

UNCLIPPED = """<style>
html, .content { overflow-x: visible !important; min-width: 0 }
@media (max-width: 82em) { .toc-drawer { display: none !important } }
</style>"""
"""The theme cuts off, or scrolls as a whole, what is wider than a narrow window: here it shows. The
list of a page's headings lies beside such a window until it is asked for."""
BUILT = Path(__file__).resolve().parents[2] / "build/docs/html"


def main() -> int:
    """Look, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=BUILT, help="of the site")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="index, spec, ...; default: all")
    options = parser.parse_args()
    folder = options.folder.resolve()
    found = (*folder.glob("*.html"), *folder.glob("recipes/*.html"))
    names = options.pages or sorted(str(p.relative_to(folder).with_suffix("")) for p in found)
    if not names:
        parser.error(f"no page in {folder}; build them with: make docs")
    wrong = [problem for name in names for problem in look(folder / f"{name}.html")]
    for problem in wrong:
        print(problem)
    print(f"{len(names)} pages, {len(wrong) or 'nothing'} wrong")
    return 1 if wrong else 0


def look(page: Path) -> Iterator[str]:
    """What is wrong with a page, in each window."""
    text = page.read_text(encoding="utf-8").replace("</body>", f"{UNCLIPPED}{SCRIPT}</body>")
    probed = page.with_name(f".{page.name}")  # beside it, where its styles are
    probed.write_text(text, encoding="utf-8")
    try:
        with tempfile.TemporaryDirectory() as temporary:
            for scheme, number in SCHEMES.items():
                blink = f"--blink-settings=preferredColorScheme={number}"
                for width, found in probe(probed, [blink], Path(temporary)).items():
                    for problem in problems_of(found):
                        yield f"{page.stem}, {scheme}, {width} px: {problem}"
    finally:
        probed.unlink()


if __name__ == "__main__":
    sys.exit(main())
