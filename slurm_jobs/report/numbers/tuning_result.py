"""Result of a run of `slurm-jobs tune`, in a sentence. PURE. The command prints the details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_jobs.formats.configs.command_stages import SAID, TUNE_RUN
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.report.numbers.current_results import SliceResults


def tuning_sentences(inputs: ReportInputs, results: Mapping[str, SliceResults]) -> dict[str, str]:
    """Return the sentence of each finished tuning stage, by its name."""
    sentences = {
        stage.name: results[stage.name].get(0, {}).get(SAID)
        for stage in inputs.stages
        if stage.run == TUNE_RUN
    }
    return {name: str(sentence) for name, sentence in sentences.items() if sentence}


def tuning_notes(inputs: ReportInputs, sentences: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each finished tuning stage, which names the command for details."""
    for name, sentence in sentences.items():
        yield (
            f"{name} tuned a training: {sentence} `slurm-jobs tune {inputs.run['run_id']}` "
            "prints before and after and all that was tried, and writes the new spec"
        )
