"""Runs every benchmark and writes what it found to docs/performance.md: `make bench`.

    python -m benchmarks [NAME ...] [--found DIR]

With names, those sections alone are written anew; the others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPTS = {
    "orchestrator": "Submitting and looking",
    "packing": "Packing",
    "staging": "Staging",
    "growth": "Large data sets",
    "preprocess": "Preprocessing",
    "reading": "Reading",
    "resume": "Resuming in the middle of an epoch",
    "checkpointing": "Checkpoints",
    "training": "Training",
    "updates": "Updates of sharded parameters",
    "recording": "Recording steps",
    "report": "The report",
    "statistics": "Comparing runs",
}
"""Modules of this package, and the headings of their tables."""
PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"

HEAD = """\
# Performance

Made by `make bench`; do not edit. Each table was measured in one run, ours and the peers in turn, \
and shows medians. A goal says whether smaller or larger is better; without one, smaller is. A row \
that misses its goal stays. What the costs mean for large sites stands in [scale.md](scale.md); \
[performance-epyc.md](performance-epyc.md) has another processor's tables.
"""


def main() -> None:
    """Run all and write the page, or run those named and write their sections anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--found", type=Path, metavar="DIR", help="take DIR/NAME.json, run nothing")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(SCRIPTS)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    sections = _sections(PAGE.read_text()) if options.names else {}
    for module in options.names or SCRIPTS:
        kept = options.found and options.found / f"{module}.json"
        found = json.loads(kept.read_text() if kept else _run(module))
        sections[SCRIPTS[module]] = _section(SCRIPTS[module], module, found)
    PAGE.write_text("\n".join([HEAD, *(sections[h] for h in SCRIPTS.values() if h in sections)]))
    print(f"{PAGE} written")


def _run(module: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".json") as stream:
        argv = [sys.executable, "-m", f"benchmarks.{module}", "--json", stream.name]
        subprocess.run(argv, check=True)
        return Path(stream.name).read_text()


def _sections(page: str) -> dict[str, str]:
    """The sections that the page has, by their headings."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## "): part.rstrip() + "\n" for part in parts}


def _section(heading: str, module: str, found: dict[str, Any]) -> str:
    machine, versions = found["machine"], found["versions"]
    lines = [
        f"## {heading}",
        "",
        f"`python -m benchmarks.{module}` on {machine['cores']} cores ({machine['cpu']}), "
        f"Python {machine['python']}, {machine['date']}; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + ".",
        "",
        "| case | unit | ours | peer | peer's | ratio | goal | met |",
        "| --- | --- | ---: | --- | ---: | ---: | --- | --- |",
    ]
    for row in found["rows"]:
        value, ratio = row["peer_value"], row["ratio"]
        met = {None: "", True: "yes", False: "**no**"}[row["met"]]
        cells = [row["case"], row["unit"], f"{row['ours']:.3g}", row["peer"]]
        cells += ["" if value is None else f"{value:.3g}", "" if ratio is None else f"{ratio:.2f}"]
        lines.append("| " + " | ".join([*cells, row["goal"], met]) + " |")
    notes = [line for note in found.get("notes", ()) for line in ("", note)]
    return "\n".join([*lines, *notes, ""])


if __name__ == "__main__":
    main()
