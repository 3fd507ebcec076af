"""Greedy answers to held-out samples, compared with the manifest."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from pipeline.preprocess.manifest import folder_of, read_manifest
from pipeline.preprocess.rejects import Reason, SampleRejectedError
from pipeline.train.batches import to_device
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ending import Ending
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.shared.configs.stages import DEFAULT_MAX_IMAGE_MB, Columns
from slurm_jobs.shared.configs.train import EvaluateConfig
from slurm_jobs.shared.configs.training_phases import LevelConfig
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.files import write_json_atomic, write_text_atomic
from slurm_jobs.shared.manifests.messages import Content, ManifestRow, Message

# Held-out samples with chained targets: each level sees the model's own previous answers.
#
# As in use: the manifest's answers are used only for the comparison.


def to_prompt(encoded: EncodedPrompt) -> Prompt:
    """Return the model's form of an encoded prompt."""
    flat = [image.reshape(-1, 3) for image in encoded.images]
    sizes = [image.shape[:2] for image in encoded.images]
    originals = [(height, width) for width, height in encoded.original_sizes]
    pixels = np.concatenate(flat) if flat else np.empty((0, 3), dtype=np.uint8)
    images = StoredImages(
        pixels=torch.from_numpy(pixels),
        sizes=torch.tensor(sizes, dtype=torch.int64).reshape(-1, 2),
        original_sizes=torch.tensor(originals, dtype=torch.int64).reshape(-1, 2),
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
        decode = self.encoder.chat.tokenizer.decode
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
    """Return the answers to some rows by name of the level; each row has a valid first level."""
    chains: list[dict[str, LevelAnswer]] = [{} for _ in rows]
    for level, config in enumerate(asker.levels):
        prompts: dict[int, EncodedPrompt] = {}
        for number, row in enumerate(rows):
            before = [answer.generated for answer in chains[number].values()]
            with suppress(SampleRejectedError):  # the previous answers may be of any length
                prompts[number] = asker.encoder.encode_prompt(row_up_to(row, level, before))
        answers = dict(zip(prompts, asker.ask(level, list(prompts.values())), strict=True))
        for number, row in enumerate(rows):
            chains[number][config.name] = LevelAnswer(
                reference=_turns(row)[level].text.strip(), generated=answers.get(number, "")
            )
    return chains


def first_level(row: ManifestRow, levels: Sequence[LevelConfig]) -> ManifestRow:
    """Return the row up to its first answer.

    Raises:
        SampleRejectedError: it has more or fewer answers than there are levels, or an answer
            that is not one of its level's classes.
    """
    turns = _turns(row)
    if len(turns) != len(levels):
        message = f"{row.origin}: {len(turns)} assistant turns, and there are {len(levels)} levels"
        raise SampleRejectedError(reason="bad_row", message=message)
    for level, turn in zip(levels, turns, strict=True):
        answer = turn.text.strip()
        if level.head == "classes" and answer not in level.classes:
            message = (
                f"{row.origin}, level {level.name}: the answer {answer!r} is not one of the "
                f"{len(level.classes)} classes"
            )
            raise SampleRejectedError(reason="bad_row", message=message)
    return row_up_to(row, 0, ())


def _turns(row: ManifestRow) -> list[Message]:
    return [message for message in row.messages if message.role == "assistant"]


def row_up_to(row: ManifestRow, level: int, answers: Sequence[str]) -> ManifestRow:
    """Return the row up to its assistant turn `level`, with other answers in the previous turns."""
    turns = [n for n, message in enumerate(row.messages) if message.role == "assistant"]
    messages = list(row.messages[: turns[level] + 1])
    for turn, answer in zip(turns[:level], answers, strict=True):
        content = (Content(kind="text", value=answer),)
        messages[turn] = dataclasses.replace(messages[turn], content=content)
    return dataclasses.replace(row, messages=tuple(messages))


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
    manifest: Path,
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
        StageConfigError: no row can be used, on rank 0; or as in `read_manifest`.
        StageStoppedError, TimeLimitError: asked to stop, on all ranks; as in `Ending.between`.
    """
    preprocess = facts.info.preprocess
    half = next(model.parameters()).dtype == torch.float16
    if half:
        keep_residual_in_fp32(model, rank_device.device)
    asker = Asker(
        model=model.to(rank_device.device).eval(),
        levels=levels,
        encoder=make_encoder(config, manifest, preprocess, processor_dir),
        facts=facts,
        rank_device=rank_device,
        max_new_tokens=config.max_new_tokens,
    )
    rows = read_rows(config, manifest, preprocess)
    own_rows = range(ranks.rank, len(rows), ranks.num_ranks)
    prompts, rejected = encode_prompts(asker.encoder, rows, own_rows, levels)
    ranks.meet("evaluation", speaks=ranks.rank in (0, 1))  # nodes read at different speeds
    batches = ending.between(list(in_batches(prompts, config.batch_size)), "held-out samples")
    with torch.autocast(rank_device.device.type, torch.float16, enabled=half):
        generations = [g for batch in batches for g in answer(asker, rows, batch)]
    shares = ranks.gather((generations, rejected))
    if ranks.rank != 0:
        return {}
    rejects = [reject for _, share in shares for reject in share]
    if len(rejects) == len(rows):
        raise _nothing_to_ask(manifest, rejects)
    for reject in rejects:
        log.warning("held-out sample left out: %s", reject.message)
    generations = sorted((g for share, _ in shares for g in share), key=lambda g: g.row)
    records = [asdict(generation) for generation in generations]
    for record in records:
        if not record["levels"]:
            del record["levels"]
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    write_text_atomic(out_dir / "generations.jsonl", "".join(f"{line}\n" for line in lines))
    summary = summarise(generations, num_rejected=len(rejects))
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

    Under fp16 with `ddp` and `single` they fit as fp32, and training summed in fp32: Qwen2's
    overflow in pure fp16, and answer with `!` (transformers#33294, QwenLM/Qwen3#826).
    """
    was_whole = rank_device.precision == "fp16" and strategy in {"ddp", "single"}
    rounds = rank_device.device.type == "cuda" and not was_whole
    return rank_device.dtype if rounds else torch.float32


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
    rows, rejects = read_rows(config, manifest, preprocess), []
    for number in range(len(rows)):
        prompts, rejected = encode_prompts(encoder, rows, [number], levels)
        if prompts:
            return
        rejects += rejected
    raise _nothing_to_ask(manifest, rejects)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutReject:
    """Why a held-out row is left out; ranks send it to each other."""

    reason: Reason
    message: str


_FOLDER_SETTINGS: Mapping[Reason, str] = {
    "missing_image": "evaluate.image_root",
    "image_outside": "evaluate.images_within",
}
"""Settings that may let an image be read, by the reason why it was not."""


def _nothing_to_ask(manifest: Path, rejects: Sequence[HeldOutReject]) -> StageConfigError:
    cause = f"none of its {len(rejects)} rows can be used" if rejects else "it has no rows"
    first = f" (first: {rejects[0].message})" if rejects else ""
    reasons = {reject.reason for reject in rejects}
    keys = [key for reason, key in _FOLDER_SETTINGS.items() if reason in reasons]
    remedy = ", ".join(["fix it", *(f"set {key}" for key in keys), "or"]) if keys else "fix it, or"
    return StageConfigError(
        f"evaluate.manifest {manifest}: {cause}{first}; {remedy} disable evaluation with "
        "`evaluate.manifest: null`"
    )


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
        max_image_mb=preprocess.get("max_image_mb", DEFAULT_MAX_IMAGE_MB),
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
) -> tuple[list[tuple[int, EncodedPrompt]], list[HeldOutReject]]:
    """Return the prompts of these rows (of chains, the first level's), and why rows have none."""
    prompts, rejected = [], []
    for number in numbers:
        try:
            row = first_level(rows[number], levels) if levels else rows[number]
            prompts.append((number, encoder.encode_prompt(row)))
        except SampleRejectedError as error:
            rejected.append(HeldOutReject(reason=error.reason, message=str(error)))
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
        answers = asker.generate(prompts)
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
            exact=all(answer.exact for answer in chain.values()),
            levels=chain if asker.levels else {},
        )
