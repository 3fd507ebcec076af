"""Evaluation on held-out samples during training: their loss, and answers to some of them.

Each rank encodes its share once, when training starts. An evaluation uses the current weights:
every rank has full weights for its duration, so ranks need not keep in step, and a sample
without an image does not cause a hang. It does not affect training: no random numbers are
drawn, and no gradient is kept.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from pipeline.data.batch import Batch, ModelNeeds, collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.disk_format.sample_members import Sample
from pipeline.data.gathered import image_rule
from pipeline.models.data_facts import DataFacts
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.timing.whole_records import append_whole
from pipeline.train.checkpoints.lasting_config import fingerprint
from pipeline.train.evaluate import Asker, Generation, answer, in_batches
from pipeline.train.held_out_rows import encode_prompts, make_encoder, paths_of, read_rows
from pipeline.train.job import Job
from pipeline.train.trained_model.trained_model import TrainedModel
from pipeline.train.training_data.batches import losses_of, to_device
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import plain_json
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.base.regular_files import MOST_MEASURED_BYTES, read_bytes
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.records.heartbeat import beat

HELD_OUT_NAME = "held_out.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutResult:
    """Result of one evaluation, over all ranks."""

    step: int
    """Optimizer steps completed, of all phases."""
    loss: float
    """Same unit as the training loss: nats per supervised token, or the weighted sum over
    levels."""
    level_losses: Mapping[str, float]
    """By name of the level; empty without levels."""
    num_tokens: int
    """Tokens that the loss is averaged over; for levels, tokens or classified answers."""
    num_answers: int
    num_exact: int
    duration_s: float
    manifest_losses: Mapping[str, float] = field(default_factory=dict)
    """The loss over the rows of each manifest of a list, by name; empty without a list."""

    @property
    def exact_match(self) -> float | None:
        """Share of exact answers; None without any."""
        return self.num_exact / self.num_answers if self.num_answers else None


class HeldOutLog:
    """Appends results; on rank 0. A failing file does not fail training."""

    def __init__(
        self,
        path: Path | None,
        *,
        attempt: int,
        trainings: Mapping[str, int],
        basis: str,
        track: Callable[[int, Mapping[str, float]], None] = lambda _step, _values: None,
    ) -> None:
        """Append to `path`, or nowhere.

        `path` is None on all ranks but 0. `trainings` has the training of each phase, as in the
        step records, with the steps done at the phase's end, in the order of the phases. Losses of
        another `basis`, a hash of the samples, are not comparable. `track` gets the steps made, and
        values by name, for trackers.
        """
        self._path, self._track = path, track
        self._attempt, self._trainings, self._basis = attempt, trainings, basis

    def has(self, step: int) -> bool:
        """Check for a result of this training after `step` steps; on rank 0.

        An unreadable file has none.
        """
        assert self._path is not None
        try:
            results = read_results(self._path, self._trainings, self._basis)
        except OSError as error:
            log.warning("%s: results of earlier attempts cannot be read: %s", self._path, error)
            return False
        return any(result.step == step for result in results)

    def write(self, result: HeldOutResult) -> None:
        """Append and log it."""
        if self._path is None:
            return
        log.info("step %d: %s", result.step, describe(result))
        exact = {} if result.exact_match is None else {"look/exact_match": result.exact_match}
        losses = {f"look/loss/{name}": loss for name, loss in result.manifest_losses.items()}
        self._track(result.step, {"look/loss": result.loss, **losses, **exact})
        # the first phase that ends at this step or later is the one that the step belongs to
        training = next(name for name, end in self._trainings.items() if result.step <= end)
        about = {"attempt": self._attempt, "training": training, "basis": self._basis}
        line = {**result_to_json(result), "exact_match": result.exact_match, **about}
        try:
            with self._path.open("ab+", buffering=0) as stream:
                end_of_last_line = ""
                if stream.seek(0, os.SEEK_END):
                    stream.seek(-1, os.SEEK_END)
                    if stream.read(1) != b"\n":  # a kill truncated the last line
                        end_of_last_line = "\n"
                data = f"{end_of_last_line}{json.dumps(plain_json(line))}\n"
                append_whole(stream, data.encode())
        except OSError as error:
            log.warning("a held-out result cannot be written: %s", error)


def result_to_json(result: HeldOutResult) -> dict[str, Any]:
    """Return its values; losses by manifest only of a list of them."""
    values = asdict(result)
    if not result.manifest_losses:
        del values["manifest_losses"]
    return values


def describe(result: HeldOutResult) -> str:
    """Return `held-out loss 0.1234, 12 of 16 exact`."""
    named = {**result.level_losses, **result.manifest_losses}
    parts = ", ".join(f"{name} {loss:.4f}" for name, loss in named.items())
    answers = f", {result.num_exact} of {result.num_answers} exact" if result.num_answers else ""
    return f"held-out loss {result.loss:.4f}{f' ({parts})' if parts else ''}{answers}"


def lowest(results: Iterable[HeldOutResult]) -> HeldOutResult | None:
    """Return the result with the lowest loss, the first of equals; None if no loss is finite."""
    finite = (result for result in results if math.isfinite(result.loss))
    return min(finite, key=lambda result: result.loss, default=None)


def read_results(
    path: Path, trainings: Collection[str], basis: str | None = None
) -> list[HeldOutResult]:
    """Read a training's results, sorted by step; none without a file.

    A later line of the file replaces an earlier one of the same step. Trainings are identified per
    phase: a phase's results stay valid if later phases change.

    Results of another `basis` are left out, because the samples may change between attempts. With
    None, the basis is that of the last result in the file.
    """
    results: list[tuple[str, HeldOutResult]] = []
    try:
        lines = read_bytes(path, most_bytes=MOST_MEASURED_BYTES).splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            values = json.loads(line)
            if values["training"] in trainings:
                results.append((values.get("basis", ""), _as_result(values)))
        except (ValueError, KeyError, TypeError, AttributeError):  # truncated by a kill
            log.warning("%s: a damaged line is ignored", path)
    if results and basis is None:
        basis, _ = results[-1]
    by_step = {result.step: result for its_basis, result in results if its_basis == basis}
    return [by_step[step] for step in sorted(by_step)]


def _as_result(values: Mapping[str, Any]) -> HeldOutResult:
    """Parse values; null is a loss that was not finite."""

    def loss_of(value: float | None) -> float:
        return math.nan if value is None else value

    of_manifests = values.get("manifest_losses", {})
    values = {**values, "manifest_losses": of_manifests}
    fields = {name: values[name] for name in HeldOutResult.__dataclass_fields__}
    for key in ("level_losses", "manifest_losses"):
        fields[key] = {name: loss_of(value) for name, value in fields[key].items()}
    return HeldOutResult(**{**fields, "loss": loss_of(fields["loss"])})


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutShare:
    """Held-out samples of one rank."""

    samples: Sequence[Sample]
    rows: Sequence[ManifestRow]
    """All evaluated rows of the manifest, of any rank."""
    prompts: Sequence[tuple[int, EncodedPrompt]]
    """Prompts with their numbers in `rows`; for chains the first level's."""
    encoder: SampleEncoder
    basis: str
    """Hash of all ranks' samples on rank 0; losses are comparable if it is equal."""


def encode_share(
    job: Job, facts: DataFacts, needs: ModelNeeds, processor_dir: Path
) -> HeldOutShare:
    """Encode this rank's part of the rows; unusable rows are left out.

    A collective.

    Raises:
        StageConfigError: on all ranks: there is no usable row.
    """
    config, preprocess = job.config.evaluate, facts.info.preprocess
    encoder = make_encoder(config, preprocess, processor_dir)
    rows = read_rows(config, preprocess, most=config.num_loss_samples)
    mine = range(job.ranks.rank, len(rows), job.ranks.num_ranks)
    samples: dict[int, Sample] = {}
    for number in mine:
        try:
            samples[number] = _encode_fitting(encoder, rows[number], facts, needs)
        except SampleRejectedError as error:
            log.warning("held-out sample left out: %s", error)
    (num_samples,) = job.ranks.sums([float(len(samples))])
    if not num_samples:
        which = "the first row" if len(rows) == 1 else f"none of the first {len(rows)} rows"
        verb = "cannot" if len(rows) == 1 else "can"
        message = (
            f"evaluate.every_steps: {which} of {paths_of(config)} {verb} be used; fix it, or "
            "remove every_steps"
        )
        raise StageConfigError(message)
    answered = [number for number in mine if number < config.num_answers]
    prompts, _ = encode_prompts(encoder, rows, answered, job.config.levels)
    # Encoded samples are compared, so the settings of encoding need no comparison. If the stage was
    # requested again, evaluations of its earlier training do not match.
    hashes = {number: _hash(sample) for number, sample in samples.items()}
    basis = ""
    hashes_by_rank = job.ranks.gather(hashes)
    if job.ranks.rank == 0:
        all_hashes = sorted(item for share in hashes_by_rank for item in share.items())
        basis = fingerprint({"samples": all_hashes, "num_again": job.context.num_again})
    return HeldOutShare(
        samples=list(samples.values()),
        rows=rows,
        prompts=prompts,
        encoder=encoder,
        basis=basis,
    )


def _hash(sample: Sample) -> str:
    digest = xxhash.xxh3_128(str(sample.meta["original_sizes"]).encode())
    for array in (sample.input_ids, sample.labels, *sample.images):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _encode_fitting(
    encoder: SampleEncoder, row: ManifestRow, facts: DataFacts, needs: ModelNeeds
) -> Sample:
    """Encode a row; a sample that does not fit the levels would fail the first evaluation."""
    planned = encoder.images.plan(row)
    tokens = encoder.finish(encoder.expand(encoder.tokenise(row), planned, row), row)
    images = encoder.images.make(row, planned)
    sample = Sample(
        key=row.key,
        input_ids=tokens.input_ids,
        labels=tokens.labels,
        images=images.images,
        meta={"original_sizes": images.original_sizes, "manifest": _name_of(row)},
    )
    if needs.levels is not None:
        try:
            _collate([sample], facts, needs)
        except ValueError as error:
            raise SampleRejectedError(reason="bad_row", message=str(error)) from error
    return sample


def _name_of(row: ManifestRow) -> str | None:
    """Return the name of the row's manifest in a list; None without a list."""
    return None if row.origin.listed is None else row.origin.listed.name


def _collate(samples: Sequence[Sample], facts: DataFacts, needs: ModelNeeds) -> Batch:
    return collate(
        [[sample] for sample in samples],
        rule=image_rule(facts.info),
        needs=needs,
        image_token_id=facts.info.image_token_id,
        pad_token_id=facts.info.pad_token_id,
        epoch=0,
        buffers=BufferPool(pin_memory=False),
    )


def _means(sums: np.ndarray) -> list[float]:
    """Return the mean of each level from float64 [2, num_levels]: losses, and numbers of them."""
    losses, nums = sums.tolist()
    return [loss / num if num else math.nan for loss, num in zip(losses, nums, strict=True)]


class HeldOut:
    """Evaluates on held-out samples when due."""

    def __init__(
        self,
        job: Job,
        facts: DataFacts,
        model: TrainedModel,
        share: HeldOutShare,
        log_file: HeldOutLog,
    ) -> None:
        self._job, self._facts, self._model, self._share, self._log = (
            job,
            facts,
            model,
            share,
            log_file,
        )

    def evaluate(self, step: int) -> HeldOutResult | None:
        """Return loss and answers after `step` steps, equal on every rank; a collective.

        None if a rank was asked to stop meanwhile: nothing of that evaluation is kept.
        """
        start_s, job = time.perf_counter(), self._job
        strategy, parallel = self._model.strategy, self._model.parallel
        with job.spans.span("evaluation", step=step), strategy.whole(parallel) as model:
            model.eval()  # without dropout
            try:
                with torch.no_grad():
                    sums = self._sum_losses(model)
                    counts = self._count_answers(model)
            finally:
                model.train()
            *sums_of_ranks, num_stops = job.ranks.sums([*sums, *counts, float(stop_requested())])
        if num_stops:
            return None
        result = self._conclude(step, sums_of_ranks, time.perf_counter() - start_s)
        self._log.write(result)
        return result

    def evaluate_unless_done(self, step: int) -> None:
        """Evaluate after `step` steps, unless the log has the result of an earlier attempt.

        A collective: rank 0's log decides.
        """
        job = self._job
        if not job.ranks.from_main(job.ranks.rank == 0 and self._log.has(step)):
            self.evaluate(step)

    def _sum_losses(self, model: VisionLanguageModel) -> list[float]:
        """Return `_sum_losses_of` this rank's samples of each manifest, one after the other."""
        sums = []
        for name in self._manifests():
            samples = [each for each in self._share.samples if each.meta["manifest"] == name]
            sums += self._sum_losses_of(model, samples)
        return sums

    def _manifests(self) -> Sequence[str | None]:
        """Return the names of the manifests of a list; a single None without a list."""
        config = self._job.config.evaluate
        is_alone = isinstance(config.manifest, str)
        return [None] if is_alone else [entry.label for entry in config.manifests]

    def _sum_losses_of(self, model: VisionLanguageModel, samples: Sequence[Sample]) -> list[float]:
        """Return the loss of each level over these samples, then its number of targets."""
        num_levels = max(1, len(self._job.config.levels))
        losses, nums = torch.zeros(num_levels), [0.0] * num_levels
        size = self._job.config.evaluate.batch_size
        samples = sorted(samples, key=lambda sample: len(sample.input_ids))
        for start in range(0, len(samples), size):
            beat()
            if stop_requested():
                break
            batch = _collate(samples[start : start + size], self._facts, self._model.needs)
            inputs = to_device(batch, self._job.rank_device, model.layout)
            with self._model.strategy.forward_context():
                losses += losses_of(model, inputs).cpu()  # SYNC: a few numbers a batch
            nums = [a + b for a, b in zip(nums, batch.learned.num_by_group, strict=True)]
        return [*losses.tolist(), *nums]

    def _count_answers(self, model: VisionLanguageModel) -> list[float]:
        """Return how many of this rank's prompts were answered, and how many exactly right."""
        config = self._job.config
        asker = Asker(
            model=model,
            levels=config.levels,
            encoder=self._share.encoder,
            facts=self._facts,
            rank_device=self._job.rank_device,
            max_new_tokens=config.evaluate.max_new_tokens,
        )
        answers: list[Generation] = []
        for batch in in_batches(self._share.prompts, config.evaluate.batch_size):
            beat()
            if stop_requested():
                break
            with self._model.strategy.forward_context():
                answers += answer(asker, self._share.rows, batch)
        return [float(len(answers)), float(sum(result.exact for result in answers))]

    def _conclude(self, step: int, sums: Sequence[float], duration_s: float) -> HeldOutResult:
        """Make the result of the sums over ranks of `_sum_losses` and `_count_answers`."""
        levels = self._job.config.levels
        num_levels = max(1, len(levels))
        *of_manifests, num_answers, num_exact = sums
        by_manifest = np.array(of_manifests).reshape(len(self._manifests()), 2, num_levels)
        nums = by_manifest[:, 1].sum(axis=0)
        means = _means(by_manifest.sum(axis=0))
        manifest_losses = {
            name: self._weighted(_means(of_manifest))
            for name, of_manifest in zip(self._manifests(), by_manifest, strict=True)
            if name is not None
        }
        return HeldOutResult(
            step=step,
            loss=self._weighted(means),
            level_losses={level.name: mean for level, mean in zip(levels, means, strict=False)},
            num_tokens=int(sum(nums)),
            num_answers=int(num_answers),
            num_exact=int(num_exact),
            duration_s=duration_s,
            manifest_losses=manifest_losses,
        )

    def _weighted(self, means: Sequence[float]) -> float:
        """Return the loss from the mean of each level, or the only mean without levels."""
        levels = self._job.config.levels
        if not levels:
            return means[0]
        return sum(level.weight * mean for level, mean in zip(levels, means, strict=True))
