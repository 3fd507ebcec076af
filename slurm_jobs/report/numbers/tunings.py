"""What a run of `slurm-jobs tune` found, in a sentence: PURE. Its own verb tells the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_jobs.common.stage_config.tune import SAID, TUNE_RUN
from slurm_jobs.report.inputs.records import ReportInputs
from slurm_jobs.report.numbers.results import SliceResults


def tuning_sentences(inputs: ReportInputs, results: Mapping[str, SliceResults]) -> dict[str, str]:
    """What each stage that tuned, and ended, has to say, by its name."""
    said = {
        stage.name: results[stage.name].get(0, {}).get(SAID)
        for stage in inputs.stages
        if stage.run == TUNE_RUN
    }
    return {name: str(sentence) for name, sentence in said.items() if sentence}


def tuning_notes(inputs: ReportInputs, sentences: Mapping[str, str]) -> Iterator[str]:
    """One for each stage that tuned, and ended, with where the rest is told."""
    for name, said in sentences.items():
        yield (
            f"{name} tuned a training: {said} `slurm-jobs tune {inputs.run['run_id']}` "
            "prints before and after and all that was tried, and writes the new spec"
        )
