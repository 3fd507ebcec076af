"""Held-out rows of another tool's training: a share of its data, or other data."""

from __future__ import annotations

import math

from slurm_jobs.commands.starter.other_tools.account import Fate
from slurm_jobs.commands.starter.translation.translation import Translation
from slurm_jobs.spec.overrides.text_edits import inline_text


def translate_held_out_rows(translation: Translation) -> None:
    """Translate which rows are evaluated instead of trained on, and how often."""
    training, manifest = translation.training, translation.facts.data.written_evaluation
    _translate_share(translation)
    if manifest is None:
        translation.without(["held_out_data"], "its rows are not here: set `evaluate.manifest`")
    else:
        text = f"`evaluate.manifest: {inline_text(manifest)}`"
        num_lost = len(training.words("held_out_data")) - len(translation.start.held_out)
        if translation.start.data and num_lost > 0:
            text += f"; {num_lost} of them are not here"
        translation.account("held_out_data", "translated", text)
    if manifest is None and not translation.held_out_share:
        no_rows = "there are no held-out rows: give them as `evaluate.manifest`"
        translation.without(["eval_steps"], no_rows)
        return
    every = training.number("eval_steps")
    if every is not None and every >= 1:
        translation.keep("eval_steps", "evaluate.every_steps", int(every))
    else:
        translation.without(["eval_steps"], "set a number of steps: `evaluate.every_steps`")


def _translate_share(translation: Translation) -> None:
    training, data = translation.training, translation.facts.data
    number = training.number("held_out_share")
    if number == 0:
        translation.account("held_out_share", "kept", "no rows are held out")
        return
    num_rows = data.num_unmixed_rows if data.entries else data.num_rows
    reason = None
    if number is None:
        return
    if data.written_evaluation is not None:
        reason = "other rows are evaluated: `evaluate.manifest`"
    elif training.is_in_file("held_out_data"):
        reason = "the file names other rows to evaluate"
    elif number < 0 or number == 1:
        reason = "it is no share between 0 and 1, and no number of rows"
    elif number > 1 and num_rows is None:
        reason = (
            "a share is needed here, and the number of all rows is not known yet: set "
            f"`held_out.share` of `preprocess` to {number:g} / ROWS"
        )
    elif number > 1 and num_rows is not None and number >= num_rows:
        reason = f"there are only {num_rows:,} rows"
    if reason is not None:
        translation.without(["held_out_share"], reason)
        return
    share, about = number, ""
    if number > 1 and num_rows:
        share, about = number / num_rows, f", {number:g} of {num_rows:,} rows"
    elif num_rows and number * num_rows < 1:
        share, about = 1 / num_rows, f", so that one of {num_rows:,} rows is held out on average"
    if share != number:
        share = math.ceil(share * 1e6) / 1e6
    translation.held_out_share = share
    text = translation.change("held_out", {"share": share}, stage="preprocess")
    fate: Fate = "kept" if share == number else "translated"
    alike = "; rows with the same picture stay together"
    translation.account("held_out_share", fate, f"{text}{about}{alike}")
