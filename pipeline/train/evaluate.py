"""Greedy answers to held-out samples, compared with the manifest."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.data.batch import collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.disk_format.sample_members import IGNORED_LABEL, Sample
from pipeline.data.gathered import image_rule
from pipeline.models.build import load_model
from pipeline.models.computation.fp32_residual import keep_residual_in_fp32
from pipeline.models.data_facts import DataFacts
from pipeline.models.finetuning.classifier_heads import load_heads
from pipeline.models.generation import Prompt
from pipeline.models.layouts.image_layout import StoredImages
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ending import Ending
from pipeline.train.held_out_rows import (
    HeldOutReject,
    encode_prompts,
    make_encoder,
    nothing_to_ask,
    read_rows,
)
from pipeline.train.level_rows import assistant_turns, row_up_to
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.training_data.batches import to_device
from slurm_jobs.base.files import write_json_atomic, write_text_atomic
from slurm_jobs.formats.configs.train import EvaluateConfig
from slurm_jobs.formats.configs.training_phases import LevelConfig
from slurm_jobs.formats.manifests.messages import ManifestRow


def to_prompt(encoded: EncodedPrompt) -> Prompt:
    """Return the model's form of an encoded prompt."""
    flat = [image.reshape(-1, 3) for image in encoded.images]
    sizes = [image.shape[:2] for image in encoded.images]
    num_pictures = len(encoded.original_sizes)
    pictures = [(height, width, num_pictures) for width, height in encoded.original_sizes]
    pixels = np.concatenate(flat) if flat else np.empty((0, 3), dtype=np.uint8)
    images = StoredImages(
        pixels=torch.from_numpy(pixels),
        sizes=torch.tensor(sizes, dtype=torch.int64).reshape(-1, 2),
        pictures=torch.tensor(pictures, dtype=torch.int64).reshape(-1, 3),
    )
    return Prompt(input_ids=encoded.input_ids.tolist(), images=images)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    """Model with levels, and the encoding of rows as its prompts."""

    model: VisionLanguageModel
    """In eval mode, and not sharded."""
    levels: Sequence[LevelConfig]
    encoder: SampleEncoder
    facts: DataFacts
    rank_device: RankDevice
    max_new_tokens: int

    def ask(self, level: int, prompts: Sequence[EncodedPrompt]) -> list[str]:
        """Return the model's answers at one level."""
        if not prompts:
            return []
        if self.levels[level].head == "text":
            return self.generate(prompts)
        return [self.levels[level].classes[n] for n in tell_classes(self, level, prompts)]

    def generate(self, prompts: Sequence[EncodedPrompt]) -> list[str]:
        """Return the model's answers as text."""
        answers = self.model.generate(
            list(map(to_prompt, prompts)), max_new_tokens=self.max_new_tokens
        )
        decode = self.encoder.chat.decode
        return [decode(answer, skip_special_tokens=True).strip() for answer in answers]


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelAnswer:
    """Answer of a model at one level of a row."""

    reference: str
    generated: str
    """Empty if the row, with the previous answers, is too long."""
    exact: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compare."""
        object.__setattr__(self, "exact", self.generated == self.reference)


def ask_chains(asker: Asker, rows: Sequence[ManifestRow]) -> list[dict[str, LevelAnswer]]:
    """Return the answers to some rows by name of the level; each row has a valid first level.

    Each level sees the model's own previous answers, as in use: those of the manifest are only
    compared.
    """
    chains: list[dict[str, LevelAnswer]] = [{} for _ in rows]
    for level, config in enumerate(asker.levels):
        prompts: dict[int, EncodedPrompt] = {}
        for number, row in enumerate(rows):
            before = [answer.generated for answer in chains[number].values()]
            with suppress(SampleRejectedError):  # the previous answers may be of any length
                prompts[number] = asker.encoder.encode_prompt(row_up_to(row, level, before))
        answers = asker.ask(level, list(prompts.values()))
        answer_of = dict(zip(prompts, answers, strict=True))
        for number, row in enumerate(rows):
            chains[number][config.name] = LevelAnswer(
                reference=assistant_turns(row)[level].text.strip(),
                generated=answer_of.get(number, ""),
            )
    return chains


@torch.inference_mode()
def tell_classes(asker: Asker, level: int, prompts: Sequence[EncodedPrompt]) -> list[int]:
    """Return the likeliest class of each prompt."""
    model = asker.model
    samples = [
        Sample(
            key=prompt.key,
            input_ids=prompt.input_ids,
            labels=np.full_like(prompt.input_ids, IGNORED_LABEL),
            images=prompt.images,
            meta={"original_sizes": prompt.original_sizes},
        )
        for prompt in prompts
    ]
    batch = collate(
        [[sample] for sample in samples],
        rule=image_rule(asker.facts.info),
        needs=model.layout.needs,
        image_token_id=asker.facts.info.image_token_id,
        pad_token_id=asker.facts.info.pad_token_id,
        epoch=0,
        buffers=BufferPool(pin_memory=False),
    )
    inputs = to_device(batch, asker.rank_device, model.layout)
    hidden, _ = model.hidden_states(
        inputs.input_ids, inputs.vision, inputs.position_ids, image_places=inputs.image_places
    )
    rows = torch.arange(len(prompts), device=hidden.device)
    lasts = torch.tensor([len(prompt.input_ids) - 1 for prompt in prompts], device=hidden.device)
    logits = model.class_logits(level, hidden[rows, lasts])
    classes: list[int] = logits.argmax(-1).tolist()  # SYNC: the answers come to the host
    return classes


log = logging.getLogger(__name__)


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
    facts: DataFacts,
    model: VisionLanguageModel,
    processor_dir: Path,
    out_dir: Path,
    ranks: Ranks,
    rank_device: RankDevice,
    ending: Ending,
) -> dict[str, Any]:
    """Generate on every rank's share with the exported `model` (`load_trained`).

    Returns:
        The content of `evaluation.json`, which rank 0 writes; an empty dict on the other ranks.

    Raises:
        StageConfigError: no row can be used, on rank 0; or as in `read_rows`.
        StageStoppedError, TimeLimitError: asked to stop, on all ranks; as in `Ending.between`.
    """
    preprocess = facts.info.preprocess
    is_fp16 = next(model.parameters()).dtype == torch.float16
    if is_fp16:
        keep_residual_in_fp32(model, rank_device.device)
    asker = Asker(
        model=model.to(rank_device.device).eval(),
        levels=levels,
        encoder=make_encoder(config, preprocess, processor_dir),
        facts=facts,
        rank_device=rank_device,
        max_new_tokens=config.max_new_tokens,
    )
    rows = read_rows(config, preprocess)
    own_rows = range(ranks.rank, len(rows), ranks.num_ranks)
    prompts, rejected = encode_prompts(asker.encoder, rows, own_rows, levels)
    ranks.meet("evaluation", speaks=ranks.rank in (0, 1))  # nodes read at different speeds
    batches = ending.between(list(in_batches(prompts, config.batch_size)), "held-out samples")
    with torch.autocast(rank_device.device.type, torch.float16, enabled=is_fp16):
        own_generations: list[Generation] = []
        for batch in batches:
            own_generations += answer(asker, rows, batch)
    shares = ranks.gather((own_generations, rejected))
    if ranks.rank != 0:
        return {}
    generations: list[Generation] = []
    rejects: list[HeldOutReject] = []
    for generations_of_rank, rejects_of_rank in shares:
        generations += generations_of_rank
        rejects += rejects_of_rank
    if len(rejects) == len(rows):
        raise nothing_to_ask(config, rejects)
    for reject in rejects:
        log.warning("held-out sample left out: %s", reject.message)
    generations.sort(key=lambda generation: generation.row)
    records = [asdict(generation) for generation in generations]
    for record in records:
        if not record["levels"]:
            del record["levels"]
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    write_text_atomic(out_dir / "generations.jsonl", "".join(f"{line}\n" for line in lines))
    summary = summarise(generations, num_rejected=len(rejects))
    if not isinstance(config.manifest, str):
        summary["manifests"] = _by_manifest(generations, rows)
    write_json_atomic(out_dir / "evaluation.json", summary)
    return summary


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


def evaluation_dtype(rank_device: RankDevice, strategy: str) -> torch.dtype:
    """Return the dtype of weights for evaluation: rounded on a GPU, where fp32 might not fit.

    After training under fp16 with `ddp` or `single` they stay fp32, in which they fit and were
    trained. Qwen2 overflows in pure fp16, and then answers with `!` (transformers#33294,
    QwenLM/Qwen3#826).
    """
    keeps_fp32 = rank_device.precision == "fp16" and strategy in {"ddp", "single"}
    if rank_device.device.type != "cuda" or keeps_fp32:
        return torch.float32
    return rank_device.dtype


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


def _by_manifest(
    generations: Sequence[Generation], rows: Sequence[ManifestRow]
) -> dict[str, dict[str, Any]]:
    """Return number and share of exact answers by the name of their manifest."""
    by_name: dict[str, list[Generation]] = {}
    for generation in generations:
        listed = rows[generation.row].origin.listed
        assert listed is not None
        by_name.setdefault(listed.name, []).append(generation)
    return {
        name: {
            "num_samples": len(some),
            "exact_match": sum(generation.exact for generation in some) / len(some),
        }
        for name, some in by_name.items()
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
    """Yield the model's answers to prompts, each with its row's number (see `encode_prompts`)."""
    if asker.levels:
        chains = ask_chains(asker, [rows[number] for number, _ in batch])
    else:
        prompts = [prompt for _, prompt in batch]
        answers = asker.generate(prompts)
        # chains of one answer each
        chains = [
            {"": LevelAnswer(reference=prompt.reference.strip(), generated=text)}
            for prompt, text in zip(prompts, answers, strict=True)
        ]
    for (row, prompt), chain in zip(batch, chains, strict=True):
        *_, last = chain.values()
        yield Generation(
            row=row,
            key=prompt.key,
            reference=last.reference,
            generated=last.generated,
            exact=all(level_answer.exact for level_answer in chain.values()),
            levels=chain if asker.levels else {},
        )
