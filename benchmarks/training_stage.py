"""Our stages, called as a supervisor calls them, for the training benchmark."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.training_job import BETAS, LEARNING_RATE, MAX_NORM, TrainingJob
from slurm_jobs.formats.records.task_context import ParentStage, TaskContext
from slurm_jobs.formats.timings.step_records import read_steps, steps_path


def make_context(stage: str, root: Path, **changes: Any) -> TaskContext:
    """Return the context of the only rank and attempt of a stage, in its own folders."""
    folders = {
        "output_dir": root / stage,
        "timing_dir": root / "timing" / stage,
        "task_dir": root / "task" / stage,
        "node_local_dir": root / "local",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "run_dir": root,
        "run_id": "benchmark",
        "stage": stage,
        "slice_index": 0,
        "num_slices": 1,
        "attempt": 1,
        "rank": 0,
        "num_ranks": 1,
        "local_rank": 0,
        "num_local_ranks": 1,
        "node_rank": 0,
        "num_nodes": 1,
        "node_name": "node-0",
        "main_addr": "127.0.0.1",
        "main_port": _free_port(),
        "parents": (),
        "config": {},
        "spec_dir": root,
        "limit": None,
        "deadline_unix_s": None,
    }
    return TaskContext(**{**values, **changes}, **folders)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_dataset(folder: Path, max_tokens: int) -> Path:
    """Preprocess and consolidate `source/rows.jsonl`; return the data set's folder."""
    from pipeline.consolidate.stage import run as consolidate
    from pipeline.preprocess.stage import run as preprocess

    config = {
        "manifest": str(folder / "source/rows.jsonl"),
        "processor": str(folder / "processor"),
        "max_tokens": max_tokens,
        "image_decoding": "exact",
    }
    context = make_context("preprocess", folder, config=config)
    preprocess(config, context)
    parent = ParentStage(
        stage="preprocess", run="preprocess", output_dir=context.output_dir, num_slices=1
    )
    context = make_context("consolidate", folder, parents=(parent,))
    consolidate({}, context)
    return context.output_dir


@contextlib.contextmanager
def saving_nothing() -> Iterator[None]:
    """Keep the `train` stage of this process from saving and exporting.

    The config cannot turn this off, because the last step always saves. Here it would cost time and
    disk (38 GB for a model of 3 billion weights) that the peers, configured not to save, do not
    spend.
    """
    from pipeline.train import stage
    from pipeline.train.checkpoints.measured_saver import MeasuredSaver

    def export_nothing(_model: Any, output_dir: Path, **_: Any) -> Path:
        folder = output_dir / "model"
        folder.mkdir()
        return folder

    with (
        mock.patch.object(MeasuredSaver, "save", return_value=None),
        mock.patch.object(stage, "export_model", export_nothing),
    ):
        yield


def run_train(job: TrainingJob, kind: str, root: Path) -> Any:
    """Train without saving; return the records of all steps.

    Args:
        job: The training to run.
        kind: Kind of batching.
        root: Folder for the output.
    """
    from pipeline.train import run

    context = make_context("train", root, config=_config(job, kind))
    with saving_nothing():
        run(context.config, context)
    return read_steps(steps_path(context.timing_dir, 0)).steps


def _config(job: TrainingJob, kind: str) -> dict[str, Any]:
    packed = {"kind": "packed", "max_tokens": job.row_tokens}
    num_microbatches: int | str = job.batch_size // job.at_once
    if kind == "packed":  # rows have equal lengths: run as many at once as fit
        num_microbatches = "auto" if job.device == "cuda" else 1
    return {
        "device": job.device,
        "precision": job.precision,
        "deterministic": job.deterministic,
        "strategy": "single",
        "dataset": str(job.folder / "consolidate"),
        "model": {"type": "hugging_face", "path": str(job.folder / "model")},
        "num_steps": job.num_steps,
        "global_batch_size": job.batch_size,
        "num_lanes": 1,
        "batching": packed if kind == "packed" else {"kind": kind},
        "num_microbatches": num_microbatches,
        "optimizer": {
            "learning_rate": LEARNING_RATE,
            "beta1": BETAS[0],
            "beta2": BETAS[1],
            "weight_decay": 0.0,
            "grad_clip_norm": MAX_NORM,
        },
        "schedule": {"kind": "constant", "warmup_share": 0.0},
        "checkpoint": {"every_min": None},
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerWork:
    """Cost of a peer's batch, by the formula of our own records."""

    model: Any
    """`ModelWork` of the same model."""
    image_token_id: int
    patches_per_image: int

    def flops(self, batch: Mapping[str, Any]) -> float:
        """Return the operations of a forward and a backward pass, without padding.

        `batch` has `input_ids`, `attention_mask` and `labels`, int64 [num_samples, length], and
        `num_images`.
        """
        from pipeline.timing.flops import WorkCounts, model_flops

        lengths = batch["attention_mask"].sum(dim=1)
        counts = WorkCounts(
            num_patches=batch["num_images"] * self.patches_per_image,
            num_patch_pairs=batch["num_images"] * self.patches_per_image**2,
            num_image_tokens=int((batch["input_ids"] == self.image_token_id).sum()),
            num_tokens=int(lengths.sum()),
            num_token_pairs=int((lengths**2).sum()),
            num_learned=int((batch["labels"] != -100).sum()),
        )
        return model_flops(self.model, counts)


def read_peer_work(job: TrainingJob) -> PeerWork:
    """Read the model's sizes, without its weights."""
    import torch

    from pipeline.data.disk_format.dataset_info import read_dataset_info
    from pipeline.models.build import make_unloaded
    from pipeline.models.computation.model_work import read_work
    from pipeline.models.data_facts import load_tokenizer, read_facts
    from slurm_jobs.formats.configs.model_parts import ModelConfig
    from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR

    dataset = job.folder / "consolidate"
    info = read_dataset_info(dataset)
    facts = read_facts(info, load_tokenizer(dataset / PROCESSOR_DIR))
    config = ModelConfig(type="hugging_face", path=str(job.folder / "model"))
    model = make_unloaded(config, facts, torch.device("meta"))
    assert info.image_height is not None  # all images have the same size
    return PeerWork(
        model=read_work(model),
        image_token_id=info.image_token_id,
        patches_per_image=(info.image_height // model.patch_size) ** 2,
    )
