"""The `train` stage on one rank, from staging to evaluation."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.models.data_facts import DataFacts, load_tokenizer, read_facts
from pipeline.timing.sampler import sample_system
from pipeline.timing.span_log import SpanLog
from pipeline.train.checkpoints.keep_after_end import not_kept_after_end
from pipeline.train.default_evaluation import with_held_out_rows
from pipeline.train.device.device_memory import give_back_memory
from pipeline.train.device.numa_cores import far_text, near_cores
from pipeline.train.device.rank_device import prepare_device
from pipeline.train.ending import Ending, TimeLimitError
from pipeline.train.evaluate import evaluate, evaluation_dtype, load_trained
from pipeline.train.export import export_model
from pipeline.train.held_out import lowest, result_to_json
from pipeline.train.held_out_rows import check_heldout
from pipeline.train.job import Job, versions
from pipeline.train.memory.out_of_memory import explain_out_of_memory
from pipeline.train.phase import phases_of
from pipeline.train.preflight.preflight import preflight
from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from pipeline.train.reporting.trackers import Trackers, check_packages
from pipeline.train.trained_model.trained_model import count_learning
from pipeline.train.trainer import Trainer
from pipeline.train.training_data.data_sources import find_datasets, open_sources
from pipeline.train.training_data.staging import describe_reading
from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.base.files import plain_json
from slurm_jobs.formats.configs.train import NO_EVALUATION, TrainConfig
from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR
from slurm_jobs.formats.records.heartbeat import start_heartbeat
from slurm_jobs.formats.records.stage_outputs import describe_outputs
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)


def train(config: TrainConfig, context: TaskContext, spans: SpanLog) -> dict[str, Any] | None:
    """Stage in, train, export, evaluate; the result on rank 0, None on the others.

    Raises:
        StageConfigError, StageStoppedError, StageError: as in `pipeline.train.run`.
    """
    began_unix_s = time.time()
    check_packages(config.trackers)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with contextlib.suppress(OSError):  # then nothing is supervised, and the work continues
        start_heartbeat(
            context.task_dir,
            context.rank,
            stall_timeout_min=config.stall_timeout_min,
            collective_timeout_min=config.collective_timeout_min,
        )
    rank_device = prepare_device(config, context)
    if far := far_text(os.sched_getaffinity(0), near_cores(rank_device.device)):
        log.warning("%s", far)
    with spans.span("process_group"):
        ranks = join_ranks(
            context,
            device_type=rank_device.device.type,
            timeout_min=config.collective_timeout_min,
        )
    job = Job(
        config=config,
        context=context,
        spans=spans,
        rank_device=rank_device,
        ranks=ranks,
        began_unix_s=began_unix_s,
    )
    try:
        result = _run(job)
    except (StageStoppedError, TimeLimitError):  # on every rank
        _leave(job)
        raise
    # After any other error the process exits without leaving: that might wait for the others.
    _leave(job)
    return result


def _leave(job: Job) -> None:
    """Leave the process group; a failing span must not fail completed work."""
    with contextlib.suppress(OSError), job.spans.span("leave_ranks"):
        leave_ranks()


def _run(job: Job) -> dict[str, Any] | None:
    folders = find_datasets(phases_of(job.config), job.context)  # before anything is copied
    job = replace(job, config=with_held_out_rows(job.config, folders))
    phases = phases_of(job.config)
    facts = read_facts(read_dataset_info(folders[0]), load_tokenizer(folders[0] / PROCESSOR_DIR))
    preflight_values = preflight(job, phases, folders, facts)
    with (
        contextlib.ExitStack() as ends_last,
        sample_system(job.config.sampler, job.context),
        open_sources(folders, job) as sources,
        Trackers(job.config.trackers, job.context) as trackers,
    ):
        # On every rank, so that all fail together and before any step.
        if job.config.evaluate.manifest is not None:
            with job.spans.span("heldout_check"):
                check_heldout(
                    job.config.evaluate,
                    levels=job.config.levels,
                    preprocess=facts.info.preprocess,
                    processor_dir=sources[0].processor_dir,
                )
        result = _train(Trainer(job, phases, sources, facts), trackers)
        ends_last.enter_context(job.spans.span("closing"))  # resources opened here
    return None if result is None else {**result, "preflight": preflight_values}


def _train(trainer: Trainer, trackers: Trackers) -> dict[str, Any] | None:
    """Train, then export and evaluate, and describe all of it, on rank 0."""
    trainer.train(trackers)
    job, sources, facts = trainer.job, trainer.sources, trainer.facts
    used = list({source.folder: source for source in sources}.values())
    reading = describe_reading(
        [(source.staged, source.dataset.files.counts) for source in used],
        job.config.staging,
        job.ranks,
    )
    ending = Ending(
        job.ranks,
        job.context,
        began_unix_s=job.began_unix_s,
        made_steps=trainer.resumed_from_step < trainer.num_steps,
    )
    described = _describe(trainer)
    model_dir = _export(trainer, ending)
    trainer.release_model()  # evaluation needs its memory
    give_back_memory(job.rank_device.device)
    evaluation = _evaluate(job, ending, facts, model_dir, sources[0].processor_dir)
    if evaluation.get("exact_match") is not None:
        trackers.log({"evaluation/exact_match": evaluation["exact_match"]}, described["num_steps"])
    if job.ranks.rank != 0:
        return None
    return {
        **described,
        "exact_match": evaluation.get("exact_match"),
        "evaluation": evaluation or None,
        "stage_in_s": sum(source.staged.duration_s for source in used),
        "stage_in_bytes": sum(source.staged.num_bytes for source in used),
        "staging": reading,
        "outputs": describe_outputs(job.context.output_dir, model_dir.iterdir()),
        "remove_after_end": not_kept_after_end(job.config, job.context.output_dir),
    }


def _export(trainer: Trainer, ending: Ending) -> Path:
    job, config = trainer.job, trainer.job.config
    ending.check("exports")
    is_peft_model = config.adapters is not None and config.model.type == "hugging_face"
    remedy = "resume on devices with more memory: the steps are made, and a checkpoint has them"
    with (
        job.spans.span("export"),
        explain_out_of_memory(job.ranks, "while the model was exported", remedy),
    ):
        return export_model(
            trainer.model.parallel.bare,
            job.context.output_dir,
            processor_dir=trainer.sources[0].processor_dir,
            ranks=job.ranks,
            attempt=job.context.attempt,
            adapters_of=(config.model.path or config.model.name) if is_peft_model else None,
            learned=trainer.model.learning.so_far[-1],
            levels=config.levels,
        )


def _evaluate(
    job: Job,
    ending: Ending,
    facts: DataFacts,
    model_dir: Path,
    processor_dir: Path,
) -> dict[str, Any]:
    if job.config.evaluate.manifest is None:
        return {}
    ending.check("evaluations")
    remedy = (
        "lower evaluate.batch_size or evaluate.max_new_tokens, or evaluate nothing: "
        f"{NO_EVALUATION}"
    )
    with (
        job.spans.span("evaluation"),
        explain_out_of_memory(job.ranks, "while held-out rows were answered", remedy),
    ):
        summary = evaluate(
            job.config.evaluate,
            levels=job.config.levels,
            facts=facts,
            model=load_trained(
                model_dir,
                facts,
                evaluation_dtype(job.rank_device, job.config.strategy),
                trust_remote_code=job.config.model.trust_remote_code,
            ),
            processor_dir=processor_dir,
            out_dir=job.context.output_dir,
            ranks=job.ranks,
            rank_device=job.rank_device,
            ending=ending,
        )
        job.ranks.barrier()
    if summary and summary["exact_match"] is not None:
        log.info(
            "held-out: %d of %d exact (%.1f %%)",
            summary["num_exact"], summary["num_samples"], 100 * summary["exact_match"],
        )  # fmt: skip
    return summary


def _describe(trainer: Trainer) -> dict[str, Any]:
    job, model, phases = trainer.job, trainer.model, trainer.planned
    values: dict[str, Any] = {
        "num_steps": trainer.num_steps,
        "resumed_from_step": trainer.resumed_from_step,
        "final_loss": phases[-1].final_loss,
        "num_parameters": model.num_parameters,
        "num_learning": count_learning(model, phases[-1].phase),
        "strategy": job.config.strategy,
        "spread": asdict(model.facts),
        "num_ranks": job.ranks.num_ranks,
        "precision": job.rank_device.precision,
        "num_skipped_steps": sum(phase.num_skips for phase in phases),
        "attention": model.parallel.bare.attention_name,
        "num_compute_threads": job.rank_device.num_compute_threads,
        "tokens_per_s": trainer.tokens_per_s,
        "versions": versions(),
    }
    if trainer.held_out_results:
        best = lowest(trainer.held_out_results)
        values["held_out"] = {
            "num_looks": len(trainer.held_out_results),
            "last": result_to_json(trainer.held_out_results[-1]),
            "lowest": None if best is None else result_to_json(best),
        }
    if job.config.phases:
        values["phases"] = [
            {
                "name": phase.phase.name,
                "first_step": phase.first_step,
                "num_steps": phase.num_steps,
                "resumed_from_step": phase.resumed.step,
                "final_loss": phase.final_loss,
                "num_learning": count_learning(model, phase.phase),
            }
            for phase in phases
        ]
    described: dict[str, Any] = plain_json(values)
    return described
