"""The result of a tuning on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.base import units
from slurm_jobs.tuning.tuning_sentence import (
    LOADING_TAKES_CORES,
    Values,
    came,
    disturbed,
    headline,
    is_unseen_price,
    value_text,
    why_nothing_tried,
)

_WIDTH = 78
_TAKEN_BACK = "taken back"
_MORE_THAN_PREDICTED = (
    "  Predicted is for the time that the finding counts; a change may save other time, too."
)
_STYLES = {
    "kept": "bold green",
    _TAKEN_BACK: "yellow",
    "rejected": "",
    "failed": "red",
    "undecided": "yellow",
}


def render(result: Values) -> RenderableType:
    """Render the content of `tuning.json`."""
    parts: list[RenderableType] = [Text(headline(result), style="bold")]
    trials_text = (
        f"{result['num_trials']} trials of {result['num_steps']} steps on "
        f"{units.number_of('rank', result['num_ranks'])}, {units.seconds(result['spent_s'])} of a "
        f"budget of {units.seconds(result['budget_s'])}"
    )
    parts.append(Text(trials_text, style="dim"))
    if note := disturbed(result):
        parts.append(Text(f"note: {note}", style="yellow"))
    data = result["data"]
    predicted = data["predicted"]
    if data["ratio"] is None:
        measured = data["failure"] or "not known: too few trials"
    else:
        measured = f"{came(data)}; {data['word']}"
    costs = _grid()
    no_wait = "no finding: steps wait for data for less than 5 % of their time"
    costs.add_row("predicted by the report", Text(predicted or no_wait))
    costs.add_row("measured, nothing to read", Text(measured))
    parts += [Text("\nWhat data costs", style="bold"), costs]
    if is_unseen_price(data):
        parts.append(Text(f"  {LOADING_TAKES_CORES}", style="yellow"))
    parts += [Text("\nTried, strongest finding first", style="bold"), *_tried(result)]
    not_tried = _grid()
    for change in result["not_tried"]:
        not_tried.add_row(Text(change["name"]), Text(change["why"]))
    not_tried.add_row(
        Text(", ".join(result["not_measured"])),
        Text("trials save and evaluate nothing: the report of a whole run shows their cost"),
    )
    parts += [Text("\nNot tried", style="bold"), not_tried]
    return Group(*parts, Text("\nBefore and after", style="bold"), *_before_and_after(result))


def _tried(result: Values) -> list[RenderableType]:
    if not result["tried"]:
        return [Text(f"  nothing: {why_nothing_tried(result)}")]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("change, and its finding", width=37, overflow="fold")
    for name, width in (("predicted", 9), ("measured", 17), ("", 11)):
        table.add_column(name, width=width, overflow="fold")
    lines = []
    exceeds_prediction = False
    for change in result["tried"]:
        outcome, ratio, times = change["outcome"], change["ratio"], change["predicted_times"]
        if outcome == "kept" and result.get("is_taken_back"):  # before and after show no gain
            outcome = _TAKEN_BACK
        words = {"undecided": "not ended", "rejected": str(change["why"])}.get(outcome, outcome)
        interval = "-"
        if ratio is not None:
            interval = f"{ratio:.3g} x\n({change['low']:.3g} to {change['high']:.3g})"
            exceeds_prediction |= times is not None and ratio > times
        table.add_row(
            Text(f"{change['name']}\n  {change['rule']}"),
            Text("?" if times is None else f"{times:.3g} x"),
            Text(interval),
            Text(words, style=_STYLES[outcome]),
        )
        if outcome in {"failed", "undecided"}:
            line = f"  {change['name']}: {words}: {change['why']}"
            lines.append(Text(line, style=_STYLES[outcome]))
    lines.append(Text("  Only what is surely faster is kept.", style="dim"))
    if exceeds_prediction:
        lines.append(Text(_MORE_THAN_PREDICTED, style="dim"))
    return [table, *lines]


def _before_and_after(result: Values) -> list[RenderableType]:
    closing = result["closing"]
    if closing is None or closing["before"] is None or closing["after"] is None:
        nothing_kept = "nothing is kept, so there is no after"
        if result["kept"]:
            failure = (closing or {}).get("failure")
            nothing_kept = f"after was not measured: {failure or 'no budget was left'}"
        return [Text(f"  {nothing_kept}"), _columns({"before": result["baseline"]})]
    parts: list[RenderableType] = [
        _columns({"before": closing["before"], "after": closing["after"]})
    ]
    if closing["ratio"] is not None:
        parts.append(Text(f"  after, against before: {came(closing)}; {closing['word']}"))
    back = "  (taken back: the new spec does not have it)" if result.get("is_taken_back") else ""
    changes = _grid()
    for change in result["kept"]:
        changes.add_row(
            Text(change["key"]),
            Text(f"{value_text(change['was'])} -> {value_text(change['value'])}{back}"),
        )
    return [*parts, changes]


def _columns(arms: Mapping[str, Values]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in arms:
        table.add_column(name, justify="right", no_wrap=True)
    for label, key, text in (
        ("tokens/s", "tokens_per_s", units.significant),
        ("samples/s", "samples_per_s", units.significant),
        ("mean step", "step_s", units.seconds),
        ("waits for data", "data_wait_share", units.percent),
        ("memory at most", "memory_peak_bytes", units.num_bytes),
        ("trials", "num_repeats", str),
    ):
        table.add_row(f" {label}", *(text(arm[key]) for arm in arms.values()))
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2, 0, 2), expand=False)
    table.width = _WIDTH
    table.add_column(ratio=2, overflow="fold")
    table.add_column(ratio=3, overflow="fold")
    return table
