"""Greedy answers to held-out samples, compared with the manifest."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipeline.models import DataFacts, VisionLanguageModel, load_model
from pipeline.models.heads import load_heads
from pipeline.models.residual import keep_residual_in_fp32
from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.manifest import folder_of, read_manifest
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.training.device import Workplace
from pipeline.training.ending import Ending
from pipeline.training.evaluate_levels import Asker, LevelAnswer, ask_chains, first_level
from pipeline.training.ranks import Ranks
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import write_json_atomic, write_text_atomic
from slurm_jobs.common.manifests.rows import ManifestRow
from slurm_jobs.common.stage_config.evaluate import EvaluateConfig
from slurm_jobs.common.stage_config.levels import LevelConfig
from slurm_jobs.common.stage_config.preprocess import Columns

log = logging.getLogger(__name__)

_KEYS = {": no such ": "evaluate.image_root", ": is outside of ": "evaluate.images_within"}
"""Config key that may fix an image that was not found or is in another folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One held-out sample and the model's answer."""

    row: int
    """Row number in the manifest, from 0."""
    key: str
    reference: str
    generated: str
    exact: bool
    """Equal except for white space at both ends; for a chain, at every level."""
    levels: Mapping[str, LevelAnswer] = field(default_factory=dict)
    """Answers of a chain, by name of the level; the reference and answer above are the last
    level's."""


def evaluate(
    config: EvaluateConfig,
    *,
    levels: Sequence[LevelConfig],
    manifest: Path,
    facts: DataFacts,
    model: VisionLanguageModel,
    processor_dir: Path,
    out_dir: Path,
    ranks: Ranks,
    workplace: Workplace,
    ending: Ending,
) -> dict[str, Any]:
    """Generate on every rank's share with the exported `model` (`load_trained`).

    Returns:
        The content of `evaluation.json`, which rank 0 writes; an empty dict on the other ranks.

    Raises:
        StageConfigError: no row can be used, on rank 0; or as in `read_manifest`.
        StageStoppedError, TimeLimitError: asked to stop, on all ranks; as in `Ending.between`.
    """
    preprocess = facts.info.preprocess
    half = next(model.parameters()).dtype == torch.float16
    if half:
        keep_residual_in_fp32(model, workplace.device)
    asker = Asker(
        model=model.to(workplace.device).eval(),
        levels=levels,
        encoder=make_encoder(config, manifest, preprocess, processor_dir),
        facts=facts,
        workplace=workplace,
        max_new_tokens=config.max_new_tokens,
    )
    rows = read_rows(config, manifest, preprocess)
    own = range(ranks.rank, len(rows), ranks.num_ranks)
    prompts, rejected = encode_prompts(asker.encoder, rows, own, levels)
    ranks.meet("evaluation", speaks=ranks.rank in (0, 1))  # nodes read at different speeds
    batches = ending.between(list(in_batches(prompts, config.batch_size)), "held-out samples")
    with torch.autocast(workplace.device.type, torch.float16, enabled=half):
        generations = [g for batch in batches for g in answer(asker, rows, batch)]
    shares = ranks.gather((generations, rejected))
    return _conclude(shares, len(rows), manifest, out_dir) if ranks.rank == 0 else {}


def _conclude(
    shares: Sequence[tuple[list[Generation], list[str]]],
    num_rows: int,
    manifest: Path,
    out_dir: Path,
) -> dict[str, Any]:
    """Combine the ranks' answers and rejected rows, and write them."""
    problems = [line for _, share in shares for line in share]
    if len(problems) == num_rows:
        raise _nothing_to_ask(manifest, problems)
    generations = sorted((g for share, _ in shares for g in share), key=lambda g: g.row)
    return _write(generations, problems, out_dir)


def load_trained(
    folder: Path, facts: DataFacts, dtype: torch.dtype, *, trust_remote_code: bool
) -> VisionLanguageModel:
    """Load the exported model with its heads, on the CPU, with weights of `dtype`.

    `trust_remote_code` is that of the training, so the same model code answers.
    """
    model = load_model(folder, facts, dtype=dtype, trust_remote_code=trust_remote_code)
    load_heads(model, folder)
    model.heads.to(dtype)
    return model


def evaluation_dtype(workplace: Workplace, strategy: str) -> torch.dtype:
    """Return the dtype of weights for evaluation: rounded on a GPU, where fp32 might not fit.

    Under fp16 with `ddp` and `single` they fit as fp32, and training summed in fp32: Qwen2's
    overflow in pure fp16, and answer with `!` (transformers#33294, QwenLM/Qwen3#826).
    """
    was_whole = workplace.precision == "fp16" and strategy in {"ddp", "single"}
    rounds = workplace.device.type == "cuda" and not was_whole
    return workplace.dtype if rounds else torch.float32


def check_heldout(
    config: EvaluateConfig,
    *,
    levels: Sequence[LevelConfig],
    manifest: Path,
    preprocess: Mapping[str, Any],
    processor_dir: Path,
) -> None:
    """Refuse before training what could not be evaluated after it; one valid row is enough.

    Raises:
        StageConfigError: no row of the manifest can be used; or as in `read_manifest`.
    """
    encoder = make_encoder(config, manifest, preprocess, processor_dir)
    rows, problems = read_rows(config, manifest, preprocess), []
    for number in range(len(rows)):
        prompts, rejected = encode_prompts(encoder, rows, [number], levels)
        if prompts:
            return
        problems += rejected
    raise _nothing_to_ask(manifest, problems)


def _nothing_to_ask(manifest: Path, problems: Sequence[str]) -> StageConfigError:
    found = f"none of its {len(problems)} rows can be used" if problems else "it has no rows"
    first = f" (first: {problems[0]})" if problems else ""
    keys = [key for said, key in _KEYS.items() if any(said in problem for problem in problems)]
    remedy = ", ".join(["fix it", *(f"set {key}" for key in keys), "or"]) if keys else "fix it, or"
    return StageConfigError(
        f"evaluate.manifest {manifest}: {found}{first}; {remedy} disable evaluation with "
        "`evaluate.manifest: null`"
    )


def _write(
    generations: Sequence[Generation], problems: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Write both files, log the problems, and return the content of `evaluation.json`."""
    for problem in problems:
        log.warning("held-out sample left out: %s", problem)
    records = [asdict(generation) for generation in generations]
    for record in records:
        if not record["levels"]:
            del record["levels"]
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    write_text_atomic(folder / "generations.jsonl", "".join(f"{line}\n" for line in lines))
    summary = summarise(generations, num_rejected=len(problems))
    write_json_atomic(folder / "evaluation.json", summary)
    return summary


def make_encoder(
    config: EvaluateConfig, manifest: Path, preprocess: Mapping[str, Any], processor_dir: Path
) -> SampleEncoder:
    """Return the encoder of held-out rows, with the limits of the data set."""
    return SampleEncoder(
        processor_dir,
        image_root=folder_of(manifest) if config.image_root is None else Path(config.image_root),
        images_within=None if config.images_within is None else Path(config.images_within),
        max_tokens=preprocess["max_tokens"],
        max_images=preprocess["max_images"],
        max_pixels=preprocess["max_pixels"],
        # older data sets have only this
        image_decoding=preprocess.get("image_decoding", "exact"),
    )


def read_rows(
    config: EvaluateConfig, manifest: Path, preprocess: Mapping[str, Any]
) -> list[ManifestRow]:
    """Read the held-out rows, with the prompts of the data set; raises like `read_manifest`."""
    return read_manifest(
        manifest,
        config.num_samples,
        prompt=preprocess["prompt"],
        system_prompt=preprocess["system_prompt"],
        columns=config.columns or Columns(**preprocess.get("columns", {})),
    )


def encode_prompts(
    encoder: SampleEncoder,
    rows: Sequence[ManifestRow],
    numbers: Iterable[int],
    levels: Sequence[LevelConfig],
) -> tuple[list[tuple[int, EncodedPrompt]], list[str]]:
    """Return the prompts of these rows (of chains, the first level's), and why rows have none."""
    prompts, rejected = [], []
    for number in numbers:
        try:
            row = first_level(rows[number], levels) if levels else rows[number]
            prompts.append((number, encoder.encode_prompt(row)))
        except SampleRejectedError as error:
            rejected.append(str(error))
    return prompts, rejected


def summarise(generations: Sequence[Generation], *, num_rejected: int) -> dict[str, Any]:
    """Return counts and the share of exact answers; None without any sample."""
    num_exact = sum(generation.exact for generation in generations)
    shares = {
        name: sum(g.levels[name].exact for g in generations) / len(generations)
        for name in (generations[0].levels if generations else ())
    }
    return {
        "num_samples": len(generations),
        "num_rejected": num_rejected,
        "num_exact": num_exact,
        "exact_match": num_exact / len(generations) if generations else None,
        "num_distinct_references": len({g.reference for g in generations}),
        "num_distinct_generations": len({g.generated for g in generations}),
        **({"levels": shares} if shares else {}),
    }


def in_batches(
    prompts: Sequence[tuple[int, EncodedPrompt]], batch_size: int
) -> Iterator[list[tuple[int, EncodedPrompt]]]:
    """Yield batches of prompts of similar length, to reduce padding."""
    by_length = sorted(prompts, key=lambda item: (len(item[1].input_ids), item[0]))
    for start in range(0, len(by_length), batch_size):
        yield by_length[start : start + batch_size]


def answer(
    asker: Asker, rows: Sequence[ManifestRow], batch: Sequence[tuple[int, EncodedPrompt]]
) -> Iterator[Generation]:
    """Yield the model's answers to prompts; their numbers are those of their rows."""
    if asker.levels:
        chains = ask_chains(asker, [rows[number] for number, _ in batch])
    else:
        prompts = [prompt for _, prompt in batch]
        said = asker.generate(prompts)
        chains = [
            {"": LevelAnswer(reference=prompt.reference.strip(), generated=text)}
            for prompt, text in zip(prompts, said, strict=True)
        ]
    for (row, prompt), chain in zip(batch, chains, strict=True):
        *_, last = chain.values()
        yield Generation(
            row=row,
            key=prompt.key,
            reference=last.reference,
            generated=last.generated,
            exact=all(answer.exact for answer in chain.values()),
            levels=chain if asker.levels else {},
        )
