"""The result of a tuning on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.common.student import CONFIDENCE
from slurm_jobs.report import words

_WIDTH = 78
_STYLES = {"kept": "bold green", "rejected": "", "failed": "red", "undecided": "yellow"}
_INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")

Values = Mapping[str, Any]


def render(result: Values) -> RenderableType:
    """The whole result as one renderable; `result` is what `tuning.json` holds."""
    parts: list[RenderableType] = [Text(headline(result), style="bold")]
    parts.append(Text(_course_text(result), style="dim"))
    parts.extend([Text("\nWhat data costs", style="bold"), *_data(result["data"])])
    parts.extend([Text("\nTried, strongest finding first", style="bold"), *_tried(result)])
    parts.extend([Text("\nNot tried", style="bold"), *_not_tried(result)])
    parts.extend([Text("\nBefore and after", style="bold"), *_before_and_after(result)])
    return Group(*parts)


def headline(result: Values) -> str:
    """What may be said, in one sentence."""
    closing, kept = result["closing"], result["kept"]
    if not kept:
        number = len(result["tried"])
        tried = (
            f"none of {number} changes is surely faster" if number else "nothing was to be tried"
        )
        return f"Nothing is kept: {tried}."
    names = ", ".join(f"{one['key']}: {_value(one['value'])}" for one in kept)
    if closing is None or closing["word"] is None:
        return (
            f"Kept: {names}; before and after were not measured side by side: no budget was left."
        )
    if closing["word"] == "faster":
        return f"{came(closing)} as fast with {names}."
    return f"Kept: {names}; side by side at the end: {closing['word']} ({came(closing)})."


def came(values: Values) -> str:
    """`1.32 times (95 % interval 1.25 to 1.40)`."""
    return f"{values['ratio']:.3g} times ({_INTERVAL} {values['low']:.3g} to {values['high']:.3g})"


def _course_text(result: Values) -> str:
    return (
        f"{result['num_trials']} trials of {result['num_steps']} steps on "
        f"{words.number_of('rank', result['num_ranks'])}, {words.seconds(result['spent_s'])} of a "
        f"budget of {words.seconds(result['budget_s'])}"
    )


def _data(data: Values) -> list[RenderableType]:
    predicted = data["predicted"] or "no finding: the steps wait for data under 5 % of their time"
    if data["ratio"] is None:
        measured = data["failure"] or "not told: too few trials"
    else:
        measured = f"{came(data)}; {data['word']}"
    table = _grid()
    table.add_row("predicted by the report", Text(predicted))
    table.add_row("came, with synthetic data", Text(measured))
    return [table]


def _tried(result: Values) -> list[RenderableType]:
    if not result["tried"]:
        return [Text("  nothing: no finding names a knob that may be turned here")]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("change, and the finding", width=37, overflow="fold")
    for name, width in (("up to", 6), ("came", 23), ("", 11)):
        table.add_column(name, width=width, overflow="fold")
    for one in result["tried"]:
        times = one["predicted_times"]
        table.add_row(
            Text(f"{one['name']}\n  {one['rule']}"),
            Text("?" if times is None else f"{times:.3g} x"),
            Text(_interval(one)),
            Text(_outcome(one), style=_STYLES[one["outcome"]]),
        )
    failed = [one for one in result["tried"] if one["outcome"] == "failed"]
    lines = [Text(f"  {one['name']} failed: {one['why']}", style="red") for one in failed]
    return [table, *lines, Text("  (kept is only what is surely faster)", style="dim")]


def _interval(one: Values) -> str:
    if one["ratio"] is None:
        return "-"
    return f"{one['ratio']:.3g} x ({one['low']:.3g} to {one['high']:.3g})"


def _outcome(one: Values) -> str:
    if one["outcome"] == "undecided":
        return "no budget"
    return str(one["why"] if one["outcome"] == "rejected" else one["outcome"])


def _not_tried(result: Values) -> list[RenderableType]:
    table = _grid()
    for one in result["not_tried"]:
        table.add_row(Text(one["name"]), Text(one["why"]))
    measured = ", ".join(result["not_measured"])
    table.add_row(Text(measured), Text("trials save and evaluate nothing: see the run's report"))
    return [table]


def _before_and_after(result: Values) -> list[RenderableType]:
    closing = result["closing"]
    if closing is None or closing["before"] is None or closing["after"] is None:
        kept = "nothing was kept: after is before"
        if result["kept"]:
            kept = "not measured side by side"
        return [Text(f"  {kept}"), _columns({"before": result["baseline"]})]
    parts: list[RenderableType] = [
        _columns({"before": closing["before"], "after": closing["after"]})
    ]
    if closing["ratio"] is not None:
        parts.append(Text(f"  after / before: {came(closing)}; {closing['word']}"))
    changes = _grid()
    for one in result["kept"]:
        changes.add_row(Text(one["key"]), Text(f"{_value(one['was'])} -> {_value(one['value'])}"))
    return [*parts, changes]


def _columns(arms: Mapping[str, Values]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in arms:
        table.add_column(name, justify="right", no_wrap=True)
    for label, key, text in (
        ("tokens/s", "tokens_per_s", words.significant),
        ("samples/s", "samples_per_s", words.significant),
        ("mean step", "step_s", words.seconds),
        ("waits for data", "data_wait_share", words.percent),
        ("memory at most", "memory_peak_bytes", words.num_bytes),
        ("repeats", "num_repeats", str),
    ):
        table.add_row(f" {label}", *(text(arm[key]) for arm in arms.values()))
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2, 0, 2), expand=False)
    table.width = _WIDTH
    table.add_column(ratio=2, overflow="fold")
    table.add_column(ratio=3, overflow="fold")
    return table


def _value(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) else value
