"""The course of the `train` stage on one rank, from staging to evaluation."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.data.dataset import open_dataset
from pipeline.data.info import PACKS_DIR, PROCESSOR_DIR, read_dataset_info
from pipeline.models import DataFacts, check_images, load_tokenizer, read_facts
from pipeline.stage_in import Staged
from pipeline.timing import SpanLog
from pipeline.timing.system_sampler import sample_system
from pipeline.training.device import prepare_device
from pipeline.training.ending import Ending, TimeLimitError
from pipeline.training.evaluate import check_heldout, evaluate
from pipeline.training.export import export_model
from pipeline.training.fit import Job, Trained, fit, versions
from pipeline.training.ranks import join_ranks, leave_ranks
from pipeline.training.staging import describe_reading, stage_together
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError, StageStoppedError
from slurm_jobs.common.outputs import describe_outputs
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)


def train(config: TrainConfig, context: TaskContext, spans: SpanLog) -> dict[str, Any] | None:
    """Stage in, train, export, evaluate; the result on rank 0, None on the others.

    Raises:
        StageConfigError, StageStoppedError, StageError: as `pipeline.training.run`.
    """
    began_unix_s = time.time()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    workplace = prepare_device(config, context)
    dataset_dir = find_dataset(config, context)
    with spans.span("process_group"):
        ranks = join_ranks(
            context,
            device_type=workplace.device.type,
            timeout_min=config.collective_timeout_min,
        )
    job = Job(
        config=config,
        context=context,
        spans=spans,
        workplace=workplace,
        ranks=ranks,
        began_unix_s=began_unix_s,
    )
    try:
        result = _run(job, dataset_dir)
    except (StageStoppedError, TimeLimitError):  # on every rank
        leave_ranks()
        raise
    # After any other error the process ends without leave_ranks, which might wait for the others.
    leave_ranks()
    return result


def find_dataset(config: TrainConfig, context: TaskContext) -> Path:
    """The data set's folder: as configured, else what the `consolidate` stage before wrote.

    Raises:
        StageConfigError: neither is there.
    """
    if config.dataset is not None:
        return Path(config.dataset)
    try:
        return context.parent_running("consolidate").output_dir
    except LookupError as error:
        message = f"{error}; or set config.dataset"
        raise StageConfigError(message) from error


def _run(job: Job, dataset_dir: Path) -> dict[str, Any] | None:
    check_images(job.config.model, read_dataset_info(dataset_dir))  # before anything is copied
    staging = job.config.staging
    with (
        sample_system(job.config.sampler, job.context),
        stage_together(dataset_dir, job.context, staging, job.ranks, job.spans) as staged,
    ):
        return _run_staged(job, dataset_dir, staged)


def _run_staged(job: Job, dataset_dir: Path, staged: Staged) -> dict[str, Any] | None:
    dataset = open_dataset(dataset_dir, staged.folder, staged.check)
    processor_dir = dataset_dir / PROCESSOR_DIR
    facts = read_facts(dataset.info, load_tokenizer(processor_dir))
    _check_heldout(job, dataset.info.preprocess, processor_dir)
    trained = fit(job, dataset, facts, dataset_dir / PACKS_DIR)
    reading = describe_reading(staged, dataset.files.counts, job.config.staging, job.ranks)
    ending = Ending(
        job.ranks, job.context, began_unix_s=job.began_unix_s, made_steps=trained.made_steps
    )
    ending.check("exports")
    with job.spans.span("export"):
        model_dir = export_model(
            trained.made.spread.bare,
            job.context.output_dir,
            processor_dir=processor_dir,
            ranks=job.ranks,
            attempt=job.context.attempt,
            adapters_of=_adapters_of(job.config),
            levels=job.config.levels,
        )
    evaluation = _evaluate(job, ending, facts, model_dir, processor_dir)
    if job.ranks.rank != 0:
        return None
    return {
        **_describe(job, trained),
        "exact_match": evaluation.get("exact_match"),
        "evaluation": evaluation or None,
        "stage_in_s": staged.duration_s,
        "stage_in_bytes": staged.num_bytes,
        "staging": reading,
        "outputs": describe_outputs(job.context.output_dir, model_dir.iterdir()),
    }


def _adapters_of(config: TrainConfig) -> str | None:
    """The model whose adapters peft can put to use, if there are any."""
    is_peft_model = config.adapters is not None and config.model.type == "hugging_face"
    return (config.model.path or config.model.name) if is_peft_model else None


def _check_heldout(job: Job, preprocess: Mapping[str, Any], processor_dir: Path) -> None:
    """Look at the held-out rows on every rank, so that all fail alike and before any step."""
    manifest = job.config.evaluate.manifest
    if manifest is not None:
        with job.spans.span("heldout_check"):
            check_heldout(
                job.config.evaluate,
                num_levels=len(job.config.levels),
                manifest=Path(manifest),
                preprocess=preprocess,
                processor_dir=processor_dir,
            )


def _evaluate(
    job: Job,
    ending: Ending,
    facts: DataFacts,
    model_dir: Path,
    processor_dir: Path,
) -> dict[str, Any]:
    manifest = job.config.evaluate.manifest
    if manifest is None:
        return {}
    ending.check("evaluations")
    with job.spans.span("evaluation"):
        summary = evaluate(
            job.config.evaluate,
            levels=job.config.levels,
            manifest=Path(manifest),
            facts=facts,
            model_dir=model_dir,
            processor_dir=processor_dir,
            out_dir=job.context.output_dir,
            ranks=job.ranks,
            workplace=job.workplace,
            ending=ending,
        )
        job.ranks.barrier()
    if summary and summary["exact_match"] is not None:
        log.info(
            "held-out: %d of %d exact (%.1f %%)",
            summary["num_exact"], summary["num_samples"], 100 * summary["exact_match"],
        )  # fmt: skip
    return summary


def _describe(job: Job, trained: Trained) -> dict[str, Any]:
    final_loss = trained.end.final_loss
    return {
        "num_steps": trained.end.num_steps_done,
        "resumed_from_step": trained.resumed.step,
        "final_loss": trained.resumed.loss if final_loss is None else final_loss,
        "num_parameters": trained.made.num_parameters,
        "num_learning": trained.made.num_learning,
        "strategy": job.config.strategy,
        "spread": dataclasses.asdict(trained.made.facts),
        "num_ranks": job.ranks.num_ranks,
        "precision": job.workplace.precision,
        "num_skipped_steps": trained.made.scaling.num_skips,
        "attention": trained.made.spread.bare.attention_name,
        "num_compute_threads": job.workplace.num_compute_threads,
        "tokens_per_s": trained.tokens_per_s,
        "versions": versions(),
    }
