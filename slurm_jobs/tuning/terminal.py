"""The result of a tuning on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.report import words
from slurm_jobs.tuning.told import (
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
    parts.append(Text(_course_text(result), style="dim"))
    if note := disturbed(result):
        parts.append(Text(f"note: {note}", style="yellow"))
    parts.extend([Text("\nWhat data costs", style="bold"), *_data(result["data"])])
    parts.extend([Text("\nTried, strongest finding first", style="bold"), *_tried(result)])
    parts.extend([Text("\nNot tried", style="bold"), *_not_tried(result)])
    parts.extend([Text("\nBefore and after", style="bold"), *_before_and_after(result)])
    return Group(*parts)


def _course_text(result: Values) -> str:
    return (
        f"{result['num_trials']} trials of {result['num_steps']} steps on "
        f"{words.number_of('rank', result['num_ranks'])}, {words.seconds(result['spent_s'])} of a "
        f"budget of {words.seconds(result['budget_s'])}"
    )


def _data(data: Values) -> list[RenderableType]:
    predicted = (
        data["predicted"] or "no finding: steps wait for data for less than 5 % of their time"
    )
    if data["ratio"] is None:
        measured = data["failure"] or "not known: too few trials"
    else:
        measured = f"{came(data)}; {data['word']}"
    table = _grid()
    table.add_row("predicted by the report", Text(predicted))
    table.add_row("measured, nothing to read", Text(measured))
    lines = [Text(f"  {LOADING_TAKES_CORES}", style="yellow")] if is_unseen_price(data) else []
    return [table, *lines]


def _tried(result: Values) -> list[RenderableType]:
    if not result["tried"]:
        return [Text(f"  nothing: {why_nothing_tried(result)}")]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("change, and its finding", width=37, overflow="fold")
    for name, width in (("predicted", 9), ("measured", 17), ("", 11)):
        table.add_column(name, width=width, overflow="fold")
    for one in result["tried"]:
        times = one["predicted_times"]
        table.add_row(
            Text(f"{one['name']}\n  {one['rule']}"),
            Text("?" if times is None else f"{times:.3g} x"),
            Text(_interval(one)),
            Text(_outcome(one, result), style=_STYLES[_kind(one, result)]),
        )
    ended = [one for one in result["tried"] if one["outcome"] in {"failed", "undecided"}]
    lines = [
        Text(
            f"  {one['name']}: {_outcome(one, result)}: {one['why']}",
            style=_STYLES[one["outcome"]],
        )
        for one in ended
    ]
    lines.append(Text("  Only what is surely faster is kept.", style="dim"))
    if any(_is_above(one) for one in result["tried"]):
        lines.append(Text(_MORE_THAN_PREDICTED, style="dim"))
    return [table, *lines]


def _is_above(one: Values) -> bool:
    """Check whether the gain exceeds the ceiling of its finding."""
    ratio, times = one["ratio"], one["predicted_times"]
    return ratio is not None and times is not None and ratio > times


def _interval(one: Values) -> str:
    if one["ratio"] is None:
        return "-"
    return f"{one['ratio']:.3g} x\n({one['low']:.3g} to {one['high']:.3g})"


def _kind(one: Values, result: Values) -> str:
    """Return the final outcome: kept changes are reverted if before and after show no gain."""
    is_back = one["outcome"] == "kept" and result.get("is_taken_back")
    return _TAKEN_BACK if is_back else str(one["outcome"])


def _outcome(one: Values, result: Values) -> str:
    if one["outcome"] == "undecided":
        return "not ended"
    return str(one["why"] if one["outcome"] == "rejected" else _kind(one, result))


def _not_tried(result: Values) -> list[RenderableType]:
    table = _grid()
    for one in result["not_tried"]:
        table.add_row(Text(one["name"]), Text(one["why"]))
    measured = ", ".join(result["not_measured"])
    table.add_row(
        Text(measured),
        Text("trials save and evaluate nothing: the report of a whole run shows their cost"),
    )
    return [table]


def _before_and_after(result: Values) -> list[RenderableType]:
    closing = result["closing"]
    if closing is None or closing["before"] is None or closing["after"] is None:
        kept = "nothing is kept, so there is no after"
        if result["kept"]:
            failure = (closing or {}).get("failure")
            kept = f"after was not measured: {failure or 'no budget was left'}"
        return [Text(f"  {kept}"), _columns({"before": result["baseline"]})]
    parts: list[RenderableType] = [
        _columns({"before": closing["before"], "after": closing["after"]})
    ]
    if closing["ratio"] is not None:
        parts.append(Text(f"  after, against before: {came(closing)}; {closing['word']}"))
    back = "  (taken back: the new spec does not have it)" if result.get("is_taken_back") else ""
    changes = _grid()
    for one in result["kept"]:
        changes.add_row(
            Text(one["key"]),
            Text(f"{value_text(one['was'])} -> {value_text(one['value'])}{back}"),
        )
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
