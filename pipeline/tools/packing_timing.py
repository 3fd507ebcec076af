"""Timed steps and pictures of ways of batching."""

from __future__ import annotations

import io
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import xxhash
from PIL import Image, ImageDraw, ImageFont

from pipeline.data.dataset import ShardedDataset
from pipeline.data.loader import BatchReader, ReadingPlan
from pipeline.data.order import rank_microbatches
from pipeline.models.build import check_images, make_unloaded
from pipeline.models.computation.recompute import recompute_layers
from pipeline.models.layouts import DataFacts, load_tokenizer, read_facts
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.accelerate_settings import asked_precision
from pipeline.train.device.precision import choose_precision
from pipeline.train.device.rank_device import RankDevice, threads_per_rank
from pipeline.train.prepare import attention_of
from pipeline.train.strategies import Single
from pipeline.train.trials import time_step
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.configs.training_parts import ShardingConfig
from slurm_jobs.shared.dataset_folder import PROCESSOR_DIR
from slurm_jobs.shared.files import write_bytes_atomic
from slurm_jobs.shared.machine import available_memory_bytes

# PNG of the rows of each way of batching: samples as coloured bars, padding in grey.


WIDTH = 1200
_MARGIN = 28
_BAR_HEIGHT, _BAR_GAP = 13, 4
_HEADING_HEIGHT, _BLOCK_GAP = 26, 16
_TOP_HEIGHT, _BOTTOM_HEIGHT = 104, 14
_TITLE_SIZE, _NAME_SIZE, _TEXT_SIZE = 22, 17, 15

BACKGROUND, INK, FAINT = (255, 255, 255), (33, 37, 41), (96, 104, 112)
PADDING = (214, 217, 221)
SAMPLE_COLOURS = (
    (68, 119, 170),
    (238, 153, 68),
    (51, 153, 119),
    (170, 85, 136),
    (204, 187, 68),
    (102, 187, 221),
)
"""Colours of consecutive samples in a row; neighbours differ in lightness, too. After Paul
Tol's colour schemes for colour-blind readers (SRON/EPS/TN/09-002)."""


def write_picture(view: Mapping[str, Any], path: Path) -> None:
    """Draw the result of `view.run` and write it to `path`, which appears whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    encoded = io.BytesIO()
    draw_view(view).save(encoded, format="PNG", optimize=True)
    write_bytes_atomic(path, encoded.getvalue())


def draw_view(view: Mapping[str, Any]) -> Image.Image:
    """Draw the picture, `WIDTH` pixels wide; its height depends on the rows."""
    ways = [way for way in view["ways"] if way["problem"] is None]
    row_height = _BAR_HEIGHT + _BAR_GAP
    heights = [_HEADING_HEIGHT + len(way["rows"]) * row_height + _BLOCK_GAP for way in ways]
    image = Image.new("RGB", (WIDTH, _TOP_HEIGHT + sum(heights) + _BOTTOM_HEIGHT), BACKGROUND)
    draw = ImageDraw.Draw(image)
    _draw_top(draw, view)
    top = _TOP_HEIGHT
    for way, height in zip(ways, heights, strict=True):
        max_tokens = view["max_tokens"]
        font = _font(_NAME_SIZE)
        draw.text((_MARGIN, top), way["name"], INK, font)
        left = _MARGIN + max(130, int(draw.textlength(way["name"], font)) + 20)
        draw.text((left, top + 2), way_words(way), FAINT, _font(_TEXT_SIZE))
        width = WIDTH - 2 * _MARGIN
        for number, row in enumerate(way["rows"]):
            above = top + _HEADING_HEIGHT + number * (_BAR_HEIGHT + _BAR_GAP)
            for start, end, sample in bar_pieces(
                row["lengths"], row["padded"], max_tokens=max_tokens, width=width
            ):
                colour = PADDING if sample < 0 else SAMPLE_COLOURS[sample % len(SAMPLE_COLOURS)]
                # Drawn one pixel short, so that the start of the next one is visible.
                right = _MARGIN + max(start, end - 2)
                draw.rectangle(
                    (_MARGIN + start, above, right, above + _BAR_HEIGHT - 1), fill=colour
                )
        top += height
    return image


def bar_pieces(
    lengths: Sequence[int], padded: int, *, max_tokens: int, width: int
) -> list[tuple[int, int, int]]:
    """Return first and last pixel (exclusive) of each sample, with its index; -1 is padding.

    Samples narrower than a pixel may be missing.

    Args:
        lengths: Tokens of the samples.
        padded: Tokens of the row with its padding.
        max_tokens: Tokens of the whole width.
        width: In pixels.
    """
    pieces, start = [], 0
    spans = [(number, length) for number, length in enumerate(lengths)]
    for number, length in [*spans, (-1, padded - sum(lengths))]:
        left, right = (place * width // max_tokens for place in (start, start + length))
        if right > left:
            pieces.append((left, right, number))
        start += length
    return pieces


def _draw_top(draw: ImageDraw.ImageDraw, view: Mapping[str, Any]) -> None:
    draw.text((_MARGIN, 16), "Rows of one batch, by way of batching", INK, _font(_TITLE_SIZE))
    words = (
        f"width: {view['max_tokens']:,} tokens   ·   {view['num_samples']:,} samples   ·   "
        f"{view['global_batch_size']} samples a step on {view['num_ranks']} ranks"
    )
    if view["device"] is not None:
        words += f"   ·   timed on {view['device']}"
    draw.text((_MARGIN, 46), words, FAINT, _font(_TEXT_SIZE))
    left = _MARGIN
    for colour in SAMPLE_COLOURS:
        draw.rectangle((left, 72, left + 13, 82), fill=colour)
        left += 14
    draw.text((left + 8, 68), "samples, one after the other", FAINT, _font(_TEXT_SIZE))
    left += 240
    draw.rectangle((left, 72, left + 40, 82), fill=PADDING)
    draw.text((left + 50, 68), "padding, which is computed, too", FAINT, _font(_TEXT_SIZE))


def way_words(way: Mapping[str, Any]) -> str:
    """Return `12.3 % padding, 1.4 samples a row, 0.31 s a step`."""
    words = [
        f"{100 * way['padding_share']:.1f} % padding",
        f"{way['samples_per_row']:.1f} samples a row",
    ]
    if "step_s" in way:
        words += [
            f"{way['step_s']:.3g} s a step",
            f"{way['s_per_1000_samples']:.3g} s for 1,000 samples",
        ]
    return "   ·   ".join(words) + ("   ·   the spec's" if way["is_configured"] else "")


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's font, so that the picture is the same on every machine."""
    return ImageFont.load_default(size)


# Speed of a model on each arrangement: forward and backward of one rank's share.
#
# On real data, read as in training. Arrangements alternate, so that a slowdown of the machine
# affects all of them. Reading, other ranks and the optimizer are not included.


NUM_ROUNDS = 8
"""Timed steps of each arrangement, after one warm-up step."""

_BYTES_PER_PARAMETER = 8
"""fp32, and its gradient."""

Report = Callable[[int, int, str], None]
"""Takes done, total and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One timed step."""

    work: float
    """Work computed, padding included, in tokens' worth."""
    spent_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Speed of one arrangement on one rank."""

    work_per_s: float
    """In tokens' worth, as `Step.work`, so that a step with few images or little padding does
    not seem fast. From the fastest step, which was least disturbed."""
    median_work_per_s: float
    """Median of the timed steps; the difference shows how much they were disturbed."""
    num_steps: int
    """Number of timed steps."""
    is_cold: bool
    """True if time was up after the first step, which then counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Model for timed steps, and its device."""

    config: TrainConfig
    dataset: ShardedDataset
    facts: DataFacts
    rank_device: RankDevice
    skeleton: VisionLanguageModel
    """Sizes of the model, without memory for its weights."""


def make_bench(config: TrainConfig, dataset: ShardedDataset, dataset_dir: Path) -> Bench:
    """Return the sizes of the config's model on this data set, and the best local device.

    Raises:
        StageConfigError: the config's model does not fit this data set.
    """
    check_images(config.model, dataset.info)
    facts = read_facts(dataset.info, load_tokenizer(dataset_dir / PROCESSOR_DIR))
    # One process without sharding, which must cast.
    return Bench(
        config=replace(config, strategy="single", sharding=ShardingConfig(), accelerate=None),
        dataset=dataset,
        facts=facts,
        rank_device=find_rank_device(config),
        skeleton=make_unloaded(config.model, facts, torch.device("meta")),
    )


def lacking_memory(bench: Bench) -> str | None:
    """Return why the model is too large to run here; None if it is not."""
    num_parameters = sum(parameter.numel() for parameter in bench.skeleton.parameters())
    needed = _BYTES_PER_PARAMETER * num_parameters
    if bench.rank_device.device.type == "cuda":
        free = torch.cuda.mem_get_info(bench.rank_device.device)[0]
    else:
        free = available_memory_bytes()
    if needed <= free:
        return None
    return (
        f"the {num_parameters / 1e9:.1f} billion parameters of the model and their gradients "
        f"need {math.ceil(needed / 1e9)} GB, but {math.floor(free / 1e9)} GB are free here"
    )


def find_rank_device(config: TrainConfig) -> RankDevice:
    """Return the config's device and precision, or the CPU if no GPU is visible."""
    num_threads = config.num_compute_threads or threads_per_rank(
        os.environ.get("SLURM_CPUS_PER_TASK"),
        num_cpus=len(os.sched_getaffinity(0)),
        num_local_ranks=1,
    )
    torch.set_num_threads(num_threads)
    if config.device == "cuda" and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        capability = torch.cuda.get_device_capability(device)
    else:
        device, capability = torch.device("cpu"), None
    return RankDevice(
        device=device,
        precision=choose_precision(asked_precision(config), capability),
        num_compute_threads=num_threads,
    )


def device_text(rank_device: RankDevice) -> str:
    """Return `NVIDIA A100, bf16` or `CPU, 2 threads, fp32`."""
    if rank_device.device.type == "cuda":
        return f"{torch.cuda.get_device_name(rank_device.device)}, {rank_device.precision}"
    number = rank_device.num_compute_threads
    return f"CPU, {number} thread{'s' if number > 1 else ''}, {rank_device.precision}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Results of `measure_plans`; a plan that was not run in time is in none of them."""

    measured: Mapping[str, Measured]
    """Results by name of the plan."""
    same_as: Mapping[str, str]
    """For plans whose timed batches equal another plan's: the name of that plan, whose result
    they share."""
    too_large: frozenset[str]
    """Plans of which a step does not fit into the GPU's memory."""


def measure_plans(
    bench: Bench,
    plans: Mapping[str, ReadingPlan],
    *,
    work_of: Callable[[ReadingPlan, int], float],
    limit_s: float,
    report: Report,
) -> Timings:
    """Measure each plan; `work_of` returns rank 0's work in a step of a plan.

    Raises:
        StageError: a sample cannot be read.
    """
    same_as = share(plans)
    model = make_unloaded(bench.config.model, bench.facts, bench.rank_device.device)
    if bench.rank_device.device.type == "cuda":  # otherwise a reference would be timed
        choice = attention_of(model, bench.config, bench.rank_device, {"packed"})
        model.uses_varlen = choice.uses_varlen
    if bench.config.activation_checkpointing:
        recompute_layers(model)
    with ExitStack() as stack:
        readers = {
            name: stack.enter_context(_open_reader(bench, model, plan))
            for name, plan in plans.items()
            if name not in same_as
        }

        numbers = {name: itertools.count() for name in readers}

        def take_step(name: str) -> Step | None:
            spent_s = _time_next(bench, model, readers[name])
            work = work_of(plans[name], next(numbers[name]))
            return None if spent_s is None else Step(work=work, spent_s=spent_s)

        steps = take_turns(readers, take_step, limit_s=limit_s, report=report)
    summaries = {name: summarise(taken) for name, taken in steps.items() if taken}
    shared = {name: summaries[other] for name, other in same_as.items() if other in summaries}
    return Timings(
        measured=summaries | shared,
        same_as=same_as,
        too_large=frozenset(name for name in plans if steps[same_as.get(name, name)] is None),
    )


def _open_reader(bench: Bench, model: VisionLanguageModel, plan: ReadingPlan) -> BatchReader:
    gpu = bench.rank_device.device if bench.rank_device.device.type == "cuda" else None
    return BatchReader(bench.dataset, plan, rank=0, needs=model.layout.needs, gpu=gpu, prefetch=1)


def _time_next(bench: Bench, model: VisionLanguageModel, reader: BatchReader) -> float | None:
    """Return seconds of a reader's next step; None if it does not fit into the GPU's memory."""
    batches = next(reader)
    try:
        return time_step(
            batches,
            model=model,
            layout=model.layout,
            strategy=Single(bench.rank_device),
            rank_device=bench.rank_device,
        )
    except torch.OutOfMemoryError:
        model.zero_grad()
        return None


def take_turns(
    names: Iterable[str],
    take_step: Callable[[str], Step | None],
    *,
    limit_s: float,
    report: Report,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[Step] | None]:
    """Run one step of each name, round by round; none begins after `limit_s`.

    The first one always runs. If the step of a name is None, it has failed: its list is None,
    and it has no further turns.
    """
    steps: dict[str, list[Step] | None] = {name: [] for name in names}
    turns = [name for _ in range(1 + NUM_ROUNDS) for name in steps]
    end_s = clock() + limit_s
    for number, name in enumerate(turns):
        if number and clock() >= end_s:
            break
        taken = steps[name]
        if taken is not None:
            step = take_step(name)
            steps[name] = None if step is None else [*taken, step]
        report(number + 1, len(turns), "steps timed")
    return steps


def summarise(steps: Sequence[Step]) -> Measured:
    """Summarise all steps but the first, which has cold caches and allocators."""
    paces = [step.work / step.spent_s for step in steps[1:] or steps]
    return Measured(
        work_per_s=max(paces),
        median_work_per_s=statistics.median(paces),
        num_steps=len(paces),
        is_cold=len(steps) == 1,
    )


def share(plans: Mapping[str, ReadingPlan]) -> dict[str, str]:
    """Return, for plans whose timed batches equal an earlier plan's, the name of that plan."""
    first: dict[str, str] = {}
    same: dict[str, str] = {}
    for name, plan in plans.items():
        batches = [
            [list(map(int, plan.samples_of(int(pack)))) for pack in microbatch.packs]
            for step in range(1 + NUM_ROUNDS)
            for microbatch in rank_microbatches(step, plan.layout, 0, plan.num_packs, plan.order)
        ]
        other = first.setdefault(
            xxhash.xxh3_128_hexdigest(repr((plan.row_length, batches)).encode()), name
        )
        if other != name:
            same[name] = other
    return same
