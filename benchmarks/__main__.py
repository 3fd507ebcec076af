"""Runs every benchmark and writes what it found to docs/performance.md: `make bench`."""

from __future__ import annotations

import json
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
    "recording": "Recording steps",
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
    """Run, and write the page."""
    parts = [HEAD]
    for module, heading in SCRIPTS.items():
        with tempfile.NamedTemporaryFile(suffix=".json") as stream:
            argv = [sys.executable, "-m", f"benchmarks.{module}", "--json", stream.name]
            subprocess.run(argv, check=True)
            parts.append(_section(heading, module, json.loads(Path(stream.name).read_text())))
    PAGE.write_text("\n".join(parts))
    print(f"{PAGE} written")


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
