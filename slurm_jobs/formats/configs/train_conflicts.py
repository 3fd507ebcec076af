"""Conflicts between keys of `TrainConfig`; each function yields messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.config import problems_in
from slurm_jobs.formats.configs.model_parts import QuantizeConfig
from slurm_jobs.formats.configs.training_parts import (
    DEFAULT_NUM_LANES,
    ScalerConfig,
    ShardingConfig,
)
from slurm_jobs.formats.configs.training_phases import (
    ALL,
    MEANT_PARTS,
    PARTS,
    SINGLE_WORD,
    SMALL_VLM_PARTS,
    PhaseConfig,
    as_training,
)
from slurm_jobs.formats.processors.model_types import SMALL_VLM

if TYPE_CHECKING:
    from slurm_jobs.formats.configs.train import TrainConfig


def train_problems(config: TrainConfig) -> list[str]:
    """Return one message for each broken rule, with field, value and remedy."""
    problems = [
        *(_phases_problems(config) if config.phases else _length_problems(config)),
        *_same_names("levels", [level.name for level in config.levels]),
        *_learn_problems(config, config.learn),
        *_device_problems(config),
        *_data_problems(config),
        *_idle_adapters_problems(config),
    ]
    messages = list(problems)
    for number, phase in enumerate(config.phases):
        try:
            as_training(config, number)
        except ValueError as error:
            of_phase = (message for message in problems_in(error) if message not in problems)
            messages += [_of_phase(phase, number, message) for message in of_phase]
    return messages


def _length_problems(config: TrainConfig) -> Iterator[str]:
    if config.num_steps is None and config.num_epochs is None:
        yield "none of num_steps, num_epochs and phases is given: give exactly one of them"
    if config.num_steps is not None and config.num_epochs is not None:
        yield (
            f"num_steps is {config.num_steps} and num_epochs is {config.num_epochs}: "
            "give exactly one of them"
        )


def _phases_problems(config: TrainConfig) -> Iterator[str]:
    yield from _same_names("phases", [phase.name for phase in config.phases])
    given = [name for name in ("num_steps", "num_epochs", "learn") if getattr(config, name)]
    if given:
        yield f"{' and '.join(given)} given together with phases: each phase has its own"
    if config.reader != "index":
        yield f"reader is {config.reader} and there are phases: use `reader: index`"


def _of_phase(phase: PhaseConfig, number: int, message: str) -> str:
    """Add phase and place to a message that begins with a key of a training."""
    key, _, rest = message.partition(" ")
    if getattr(phase, key.partition(".")[0], None) is None:
        return f"phases.{number} ({phase.name}): {message}"
    return f"phases.{number}.{key} of phase {phase.name} {rest}"


def _same_names(key: str, names: Sequence[str]) -> Iterator[str]:
    """Yield list entries with the name of an earlier one, with both places."""
    for number, name in enumerate(names):
        if (first := names.index(name)) < number:
            yield (
                f"{key}.{number}.name is {name}, as is {key}.{first}.name: give each a name of its "
                "own"
            )


def _learn_problems(config: TrainConfig, learn: Collection[str] | None) -> Iterator[str]:
    """Yield problems of the parts that the training learns, or a phase of it."""
    if learn is not None and not learn:
        yield "learn is empty: give a part (projector) or a pattern, or leave it out"
    for name in learn or ():
        if SINGLE_WORD.fullmatch(name) and name not in {*PARTS, ALL}:
            yield (
                f"learn has {name!r}, which is neither a part ({', '.join(PARTS)}, {ALL}) nor a "
                f"pattern of parameter names (*.layers.1.*){did_you_mean(name, (*PARTS, ALL))}"
            )
        first, dot, _ = name.partition(".")
        is_foreign = dot and SINGLE_WORD.fullmatch(first) and first not in SMALL_VLM_PARTS
        if is_foreign and config.model.type == SMALL_VLM:
            meant = next(
                (part for letters, part in MEANT_PARTS.items() if letters in name), "language"
            )
            yield (
                f"learn has {name!r}, and model.type is small_vlm, whose parameters have names "
                f"that begin with {', '.join(f'{prefix}.' for prefix in SMALL_VLM_PARTS[:-1])} or "
                f"{SMALL_VLM_PARTS[-1]}.: write for example `{meant}.*`"
            )
    if "adapters" in (learn or ()) and config.adapters is None:
        yield (
            "learn names adapters, and there are none: give `adapters: {rank: 16}`, or leave "
            "`adapters` out of it"
        )
    if "heads" in (learn or ()) and all(level.head != "classes" for level in config.levels):
        yield (
            "learn names heads, and there are none: give `levels` of which one has `head: "
            "classes`, or leave `heads` out of it"
        )


def _idle_adapters_problems(config: TrainConfig) -> Iterator[str]:
    """Yield a problem of adapters that never learn, unless a misspelt name may be the cause."""
    learning = [phase.learn for phase in config.phases] or [config.learn]
    is_used = any(names is None or "adapters" in names for names in learning)
    is_misspelt = any(any(_learn_problems(config, names)) for names in learning)
    if config.adapters is not None and not is_used and not is_misspelt:
        last = len(config.phases) - 1
        place = f"that of a phase (phases.{last}.learn)" if config.phases else "it"
        yield (
            f"adapters are given, and learn names them nowhere: add `adapters` to {place}, or "
            "leave adapters out"
        )


def _device_problems(config: TrainConfig) -> Iterator[str]:
    """Yield problems of how the model is stored and computed."""
    strategy = config.strategy
    if strategy != "fsdp2" and config.sharding != ShardingConfig():
        why = "whose file says how" if strategy == "accelerate" else "which does not shard"
        yield f"strategy is {strategy}, {why}: leave sharding out, or set `strategy: fsdp2`"
    if strategy == "accelerate" and config.accelerate is None:
        yield (
            "strategy is accelerate, and no file configures it: give `accelerate: {config: FILE}`"
        )
    if strategy != "accelerate" and config.accelerate is not None:
        yield (
            f"accelerate is given, and strategy is {strategy}: set `strategy: "
            "accelerate`, or leave accelerate out"
        )
    if config.precision in {"bf16", "fp32"} and config.scaler != ScalerConfig():
        yield (
            f"precision is {config.precision}, which scales no loss: leave scaler out, or set "
            "`precision: fp16`"
        )
    if config.quantize is not None:
        yield from _quantize_problems(config, config.quantize)
    if config.compile is not None and config.quantize is not None:
        yield (
            "compile and quantize are given: that kernels made for layers in 4 bits compute the "
            "same has not been proven; leave one of the two out"
        )
    kind, is_on_cpu = config.optimizer.kind, config.device == "cpu"
    if config.optimizer.is_paged and (is_on_cpu or config.sharding.cpu_offload):
        setting = "device is cpu" if is_on_cpu else "sharding.cpu_offload is true"
        yield (
            f"optimizer.kind is {kind} and {setting}: its state is paged out of a GPU's memory, "
            f"and no GPU holds it here; set `kind: {kind.removeprefix('paged_')}`"
        )


def _quantize_problems(config: TrainConfig, quantize: QuantizeConfig) -> Iterator[str]:
    """Yield a problem of the training; if there is none, of the parts that its phases learn."""
    problems = [
        quantize.problem(
            learn=learn,
            has_adapters=config.adapters is not None,
            strategy=config.strategy,
            precision=config.precision,
        )
        for learn in (config.learn, *(phase.learn for phase in config.phases))
    ]
    if problems[0] is not None:
        yield problems[0]
        return
    for number, (phase, problem) in enumerate(zip(config.phases, problems[1:], strict=True)):
        if problem is not None:
            yield _of_phase(phase, number, problem)


def _data_problems(config: TrainConfig) -> Iterator[str]:
    """Yield problems of batches, and of steps to profile that are never run."""
    if config.reader == "webdataset" and config.batching.kind != "shuffled":
        yield (
            f"batching.kind is {config.batching.kind} and reader is webdataset: a stream knows "
            f"no lengths ahead; use `reader: index`, or `batching: {{kind: shuffled}}`"
        )
    if config.reader == "webdataset" and config.num_microbatches == "auto":
        yield (
            "num_microbatches is auto and reader is webdataset: a stream does not know its "
            "heaviest microbatch ahead; use `reader: index`, or give num_microbatches as a number"
        )
    if config.global_batch_size % config.num_lanes:
        fewer = config.global_batch_size // config.num_lanes * config.num_lanes
        multiples = " or ".join(str(n) for n in (fewer, fewer + config.num_lanes) if n)
        if config.num_lanes == DEFAULT_NUM_LANES:
            yield (
                f"global_batch_size is {config.global_batch_size}: give a multiple of "
                f"{config.num_lanes} (the default of num_lanes), such as {multiples}"
            )
        else:
            yield (
                f"num_lanes is {config.num_lanes}: give a divisor of global_batch_size "
                f"({config.global_batch_size}), or let global_batch_size be a multiple of it "
                f"({multiples})"
            )
    num_steps = config.num_steps
    if config.phases and all(phase.num_steps for phase in config.phases):
        num_steps = sum(phase.num_steps or 0 for phase in config.phases)
    never = None if num_steps is None else config.profile.why_never(num_steps)
    if never:
        yield never
