"""The table of a run, for the terminal and for docs/guides/clusters/gpu.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.work import CaseResult

NOT_RUN = "not run: "
"""How the reason of a case begins for which no time was left."""
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
_MOST_TEXT = 100
_MOST_LETTERS = 60
"""Of a figure in the table."""


def line(result: CaseResult) -> str:
    """Return one line of a case that has just ended."""
    reason = f": {result.reason}" if result.reason else ""
    return f"{result.name}: {result.status} ({result.seconds:.0f} s){reason}"


def table(report: Mapping[str, Any]) -> str:
    """Return all cases with their status, and how many have each."""
    results: list[CaseResult] = report["cases"]
    width = max(len(result.name) for result in results)
    counts: dict[str, int] = {}
    lines = []
    for result in results:
        counts[result.status] = counts.get(result.status, 0) + 1
        text = _text(result.reason, result.left_out, result.figures)
        lines.append(
            f"{result.name:<{width}}  {result.status:<20}  {result.seconds:>5.0f} s  "
            f"{text[:_MOST_TEXT]}".rstrip()
        )
    total = ", ".join(f"{number} {status}" for status, number in counts.items())
    seconds = report.get("seconds", sum(result.seconds for result in results))
    return "\n".join([*lines, "", f"{total} in {seconds:.0f} s"])


def write(page: Path, report: Mapping[str, Any]) -> None:
    """Write the results into a page, instead of the last ones, and next to it as JSON."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{markdown(report)}\n{END}{after}", encoding="utf-8")
    json_path = page.with_name(f"{page.stem}-results.json")
    json_path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the newest result of each case that ran; the oldest report comes first.

    Raises:
        ValueError: the reports are of several machines or versions.
    """
    for name in ("gpu", "machine", "versions"):
        if any(report.get(name) != reports[0].get(name) for report in reports):
            message = f"{name} differs: {[report.get(name) for report in reports]}"
            raise ValueError(message)
    cases: dict[str, Mapping[str, Any]] = {}
    for case in (case for report in reports for case in report["cases"]):
        if case["name"] not in cases or not case["reason"].startswith(NOT_RUN):
            cases[case["name"]] = case
    whole = {name: value for name, value in reports[-1].items() if name != "seconds"}
    return {**whole, "cases": list(cases.values())}


def markdown(report: Mapping[str, Any]) -> str:
    """Return the machine, the versions, and tables of the cases of a `results.json`."""
    device = report["gpu"] or f"CPU ({report['machine']})"
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    rows = [
        f"| {case['name']} | {case['status']} | {case['seconds']:.0f} | "
        f"{_cell(_text(case['reason'], case['left_out'], case['figures']))} |"
        for case in report["cases"]
    ]
    return "\n".join(
        [
            f"{report['date']}, {device}. Python {report['python']}, {versions}.",
            "",
            *_speed_table(report["cases"]),
            "| case | status | seconds | figures or reason |",
            "| --- | --- | ---: | --- |",
            *rows,
        ]
    )


_SPEEDS = (
    ("tokens_per_s", "tokens/s", "{:,.0f}"),
    ("mfu", "MFU", "{:.1%}"),
    ("idle_share", "device idle", "{:.1%}"),
    ("padding_share", "padding", "{:.1%}"),
    ("peak_gb", "peak GB", "{:.1f}"),
)


def _speed_table(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of the cases that were timed on a GPU; nothing if there are none."""
    timed = [case for case in cases if case["figures"].keys() >= {name for name, *_ in _SPEEDS}]
    if not timed:
        return []
    rows = [
        [case["name"].removeprefix("speed: "), *(form.format(case["figures"][name])
         for name, _, form in _SPEEDS)]
        for case in timed
    ]  # fmt: skip
    titles = ["rows", *(title for _, title, _ in _SPEEDS)]
    lines = [titles, ["---", *["---:"] * len(_SPEEDS)], *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _text(reason: str, left_out: Sequence[Mapping[str, str]], figures: Mapping[str, Any]) -> str:
    without = "; ".join(f"without {each['left_out']}: {each['reason']}" for each in left_out)
    return "; ".join(filter(None, (reason, without, _summary(figures))))


def _summary(figures: Mapping[str, Any]) -> str:
    """Return the figures that are numbers or words; the rest stays in the JSON file."""
    short = {
        name: value
        for name, value in figures.items()
        if isinstance(value, (int, float, str))
        and len(str(value)) <= _MOST_LETTERS
        and not name.startswith("device_")
    }
    return ", ".join(
        f"{name.replace('_', ' ')} {value:.4g}" if isinstance(value, float) else
        f"{name.replace('_', ' ')} {value}"
        for name, value in short.items()
    )  # fmt: skip


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
