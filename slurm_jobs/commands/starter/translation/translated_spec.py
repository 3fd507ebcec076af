"""Spec of another tool's training: the starter spec with what the tool's file says."""

from __future__ import annotations

from slurm_jobs.commands.starter.other_tools.start_point import StartPoint
from slurm_jobs.commands.starter.sample_lengths import LengthLimits
from slurm_jobs.commands.starter.spec_changes import without_packing, without_share_comment
from slurm_jobs.commands.starter.translation.batch_sizes import translate_batches
from slurm_jobs.commands.starter.translation.computation_settings import translate_computation
from slurm_jobs.commands.starter.translation.held_out_rows import translate_held_out_rows
from slurm_jobs.commands.starter.translation.kept_outputs import translate_outputs
from slurm_jobs.commands.starter.translation.learned_parts import translate_learned_parts
from slurm_jobs.commands.starter.translation.optimizer_settings import translate_optimizer
from slurm_jobs.commands.starter.translation.sample_limits import translate_sample_limits
from slurm_jobs.commands.starter.translation.translation import StartFacts, Translation
from slurm_jobs.spec.overrides.text_edits import edit_text

_LEFT_OUT = "# a longer sample is left out, and listed"
_CUT = "# the end of a longer text is cut"


def translate(start: StartPoint, facts: StartFacts, lengths: LengthLimits) -> Translation:
    """Translate a training; `lengths` are the limits that its rows need.

    Raises:
        InputError: a value is of the wrong kind.
    """
    translation = Translation(start, facts)
    translate_sample_limits(translation, lengths)
    translate_held_out_rows(translation)
    translate_batches(translation)
    translate_optimizer(translation)
    translate_learned_parts(translation)
    translate_computation(translation)
    translate_outputs(translation)
    return translation


def translated_text(text: str, translation: Translation) -> str:
    """Return the text of the starter spec with all changes of a translation."""
    training, name = translation.training, translation.facts.name
    _, _, rest = text.partition("\n")
    head = (
        f"# Fine-tunes a vision-language model as {training.file.name} of {training.tool.name} "
        f"does.\n# {keys_file(name)} states what became of each of its keys."
    )
    lines = f"{head}\n{rest}".splitlines(keepends=True)
    dropped = tuple(f"      {key}: " for key in translation.dropped)
    text = "".join(line for line in lines if not dropped or not line.startswith(dropped))
    if translation.held_out_share or translation.facts.data.written_evaluation is not None:
        text = without_share_comment(text)
    if not translation.is_packed:
        text = without_packing(text)
    if any(path[-1] == "too_long" for path, _ in translation.changes):
        text = text.replace(_LEFT_OUT, _CUT, 1)
    return edit_text(text, translation.changes)


def keys_file(name: str) -> str:
    """Return the name of the file with the account, next to a spec of this name."""
    return f"{name}-keys.md"
