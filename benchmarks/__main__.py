"""Run the benchmarks and write docs/explanation/performance.md: `make bench`.

    python -m benchmarks [NAME ...] [--found DIR]

With names, only those sections are replaced. Figures that an earlier run measured on another
processor stay in the table, in columns of their own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
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
    "families": "Training every model family",
    "updates": "Updates of sharded parameters",
    "recording": "Recording steps",
    "report": "The report",
    "statistics": "Comparing runs",
}
"""Modules of this package and the headings of their sections."""
PAGE = Path(__file__).resolve().parents[1] / "docs/explanation/performance.md"

HEAD = """\
# Performance

`make bench` writes this page; do not edit it. Each table comes from one run in which ours and the \
peers take turns, and shows medians. A goal says whether smaller or larger is better; without a \
goal, smaller is better. Rows that miss their goal are kept.

Ratios depend on the processor. If a second processor was measured, its columns come last, under \
its name. [Scale](scale.md) explains what these costs mean for large sites.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Figures of one section, measured on one processor."""

    about: str
    """Machine, date and versions."""
    rows: dict[tuple[str, str, str], tuple[str, str, str, str, str]]
    """(ours, the peer's, ratio, goal, met) by (case, unit, peer)."""


def main() -> None:
    """Run all benchmarks or those named, and write their sections of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--found", type=Path, metavar="DIR", help="take DIR/NAME.json, run nothing")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(SCRIPTS)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    sections = _sections(PAGE.read_text())
    for module in options.names or SCRIPTS:
        path = options.found and options.found / f"{module}.json"
        results = json.loads(path.read_text() if path else _run(module))
        earlier = sections.get(SCRIPTS[module], "")
        sections[SCRIPTS[module]] = _section(SCRIPTS[module], module, results, earlier)
    PAGE.write_text("\n".join([HEAD, *(sections[h] for h in SCRIPTS.values() if h in sections)]))
    print(f"{PAGE} written")


def _run(module: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".json") as stream:
        argv = [sys.executable, "-m", f"benchmarks.{module}", "--json", stream.name]
        subprocess.run(argv, check=True)
        return Path(stream.name).read_text()


def _sections(page: str) -> dict[str, str]:
    """Return the sections of the page by heading."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## "): part.rstrip() + "\n" for part in parts}


def _section(heading: str, module: str, results: dict[str, Any], earlier: str) -> str:
    """Return the section with new figures, keeping those of other processors."""
    machine, versions = results["machine"], results["versions"]
    names = ", ".join(f"{name} {number}" for name, number in versions.items())
    newest = Measured(
        about=f"on {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, "
        f"{machine['date']}; {names}.",
        rows={(row["case"], row["unit"], row["peer"]): _figures(row) for row in results["rows"]},
    )
    others = {
        processor: measured
        for processor, measured in measured_in(earlier).items()
        if processor != _processor(machine["cpu"]) and measured.rows.keys() & newest.rows.keys()
    }
    return section(heading, module, newest, others, results.get("notes", ()))


def _figures(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    value, ratio = row["peer_value"], row["ratio"]
    return (
        f"{row['ours']:.3g}",
        "" if value is None else f"{value:.3g}",
        "" if ratio is None else f"{ratio:.2f}",
        row["goal"],
        {None: "", True: "yes", False: "**no**"}[row["met"]],
    )


def section(
    heading: str,
    module: str,
    newest: Measured,
    others: dict[str, Measured],
    notes: Iterable[str] = (),
) -> str:
    """Return a section as Markdown; `others` are earlier figures by processor."""
    lines = [f"## {heading}", "", f"`python -m benchmarks.{module}` {newest.about}"]
    for processor, measured in others.items():
        lines += ["", f"{processor}: {measured.about}"]
    head = "| case | unit | ours | peer | peer's | ratio | goal | met |"
    rule = "| --- | --- | ---: | --- | ---: | ---: | --- | --- |"
    head += "".join(f" {processor}: ours | peer's | ratio | met |" for processor in others)
    lines += ["", head, rule + " ---: | ---: | ---: | --- |" * len(others)]
    for key, (ours, peers, ratio, goal, met) in newest.rows.items():
        case, unit, peer = key
        cells = [case, unit, ours, peer, peers, ratio, goal, met]
        for measured in others.values():
            figures = measured.rows.get(key, ("",) * 5)
            cells += [*figures[:3], figures[4]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *(line for note in notes for line in ("", note)), ""])


def measured_in(text: str) -> dict[str, Measured]:
    """Read the figures of a section's Markdown, by processor."""
    abouts = re.findall(r"(on \d+ cores \((.+?)\), Python .+)", text)
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    ][2:]
    results = {}
    for place, (about, cpu) in enumerate(abouts):
        rows = {}
        for case, unit, own, peer, own_peers, own_ratio, goal, own_met, *others in table:
            figures = [own, own_peers, own_ratio, own_met, *others][4 * place : 4 * place + 4]
            if figures[0]:
                ours, peers, ratio, met = figures
                rows[case, unit, peer] = (ours, peers, ratio, goal, met)
        results[_processor(cpu)] = Measured(about=about, rows=rows)
    return results


def _processor(cpu: str) -> str:
    """Return a short name: `Xeon` for `Intel(R) Xeon(R) Processor @ 2.50GHz`."""
    words = re.sub(r"\((R|TM)\)|\b(Intel|AMD|CPU|Processor)\b|@.*", " ", cpu).split()
    return " ".join(words) or cpu


if __name__ == "__main__":
    main()
