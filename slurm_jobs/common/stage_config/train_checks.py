"""Conflicts between keys of `TrainConfig`; each function returns messages, or none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from slurm_jobs.common.config_values import problems_in
from slurm_jobs.common.model_kinds import SMALL_VLM
from slurm_jobs.common.stage_config.learn import learn_problems
from slurm_jobs.common.stage_config.optimizer import paged_problem
from slurm_jobs.common.stage_config.phases import as_training
from slurm_jobs.common.stage_config.sharding import ScalerConfig, ShardingConfig

if TYPE_CHECKING:
    from slurm_jobs.common.stage_config.phases import PhaseConfig
    from slurm_jobs.common.stage_config.train import TrainConfig


def train_problems(config: TrainConfig) -> list[str]:
    """Return one message for each broken rule, with field, value and remedy."""
    own = [message for message in _own_problems(config) if message]
    return [*own, *_problems_of_phases(config, own)]


def _own_problems(config: TrainConfig) -> Iterator[str | None]:
    """Yield problems of the training's own keys; `_problems_of_phases` checks those of phases."""
    if config.phases:
        yield from _phases_problems(config)
    else:
        yield _length_problem(config)
    yield from _same_names("levels", [level.name for level in config.levels])
    yield from _learn_problems(config, config.learn)
    yield from _strategy_problems(config)
    yield _scaler_problem(config)
    yield from _quantize_problems(config)
    yield _compile_problem(config)
    yield paged_problem(
        config.optimizer, device=config.device, is_offloaded=config.sharding.cpu_offload
    )
    yield from _reader_problems(config)
    yield _lanes_problem(config)
    yield _profile_problem(config)
    yield _idle_adapters_problem(config)


def _length_problem(config: TrainConfig) -> str | None:
    """Return a problem if a training has no length, or two."""
    if config.num_steps is None and config.num_epochs is None:
        return "none of num_steps, num_epochs and phases is given: give exactly one of them"
    if config.num_steps is not None and config.num_epochs is not None:
        return (
            f"num_steps is {config.num_steps} and num_epochs is {config.num_epochs}: "
            "give exactly one of them"
        )
    return None


def _phases_problems(config: TrainConfig) -> Iterator[str]:
    yield from _same_names("phases", [phase.name for phase in config.phases])
    given = [name for name in ("num_steps", "num_epochs", "learn") if getattr(config, name)]
    if given:
        yield f"{' and '.join(given)} given together with phases: each phase has its own"
    if config.reader != "index":
        yield f"reader is {config.reader} and there are phases: use `reader: index`"


def _problems_of_phases(config: TrainConfig, own: Collection[str]) -> Iterator[str]:
    """Yield problems of each phase as a single training, with its name and place.

    Problems of the whole training, its `own`, are left out.
    """
    for number, phase in enumerate(config.phases):
        try:
            as_training(config, number)
        except ValueError as error:
            found = (message for message in problems_in(error) if message not in own)
            yield from (_of_phase(phase, number, message) for message in found)


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
    yield from learn_problems(
        learn or (),
        has_adapters=config.adapters is not None,
        has_heads=any(level.head == "classes" for level in config.levels),
        is_small_vlm=config.model.type == SMALL_VLM,
    )


def _idle_adapters_problem(config: TrainConfig) -> str | None:
    """Return a problem of adapters that never learn, unless a misspelt name may be the cause."""
    learning = [phase.learn for phase in config.phases] or [config.learn]
    is_used = any(names is None or "adapters" in names for names in learning)
    is_misspelt = any(any(_learn_problems(config, names)) for names in learning)
    if config.adapters is None or is_used or is_misspelt:
        return None
    last = len(config.phases) - 1
    place = f"that of a phase (phases.{last}.learn)" if config.phases else "it"
    return (
        f"adapters are given, and learn names them nowhere: add `adapters` to {place}, or leave "
        "adapters out"
    )


def _strategy_problems(config: TrainConfig) -> Iterator[str]:
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


def _scaler_problem(config: TrainConfig) -> str | None:
    if config.precision in {"bf16", "fp32"} and config.scaler != ScalerConfig():
        return (
            f"precision is {config.precision}, which scales no loss: leave scaler out, or set "
            "`precision: fp16`"
        )
    return None


def _quantize_problems(config: TrainConfig) -> Iterator[str]:
    """Yield problems of the training; if there are none, of the parts that its phases learn."""
    quantize = config.quantize
    if quantize is None:
        return

    def problem(learn: tuple[str, ...] | None) -> str | None:
        return quantize.problem(
            learn=learn,
            has_adapters=config.adapters is not None,
            strategy=config.strategy,
            precision=config.precision,
        )

    if (found := problem(config.learn)) is not None:
        yield found
        return
    for number, phase in enumerate(config.phases):
        if (said := problem(phase.learn)) is not None:
            yield _of_phase(phase, number, said)


def _compile_problem(config: TrainConfig) -> str | None:
    if config.compile is not None and config.quantize is not None:
        return (
            "compile and quantize are given: that kernels made for layers in 4 bits compute the "
            "same has not been proven; leave one of the two out"
        )
    return None


def _reader_problems(config: TrainConfig) -> Iterator[str]:
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


def _lanes_problem(config: TrainConfig) -> str | None:
    if config.global_batch_size % config.num_lanes:
        fewer = config.global_batch_size // config.num_lanes * config.num_lanes
        multiples = [n for n in (fewer, fewer + config.num_lanes) if n]
        return (
            f"num_lanes is {config.num_lanes}: give a divisor of global_batch_size "
            f"({config.global_batch_size}), or let global_batch_size be a multiple of it "
            f"({' or '.join(map(str, multiples))})"
        )
    return None


def _profile_problem(config: TrainConfig) -> str | None:
    """Return a problem of steps to profile that are never run."""
    num_steps = config.num_steps
    if config.phases and all(phase.num_steps for phase in config.phases):
        num_steps = sum(phase.num_steps or 0 for phase in config.phases)
    return None if num_steps is None else config.profile.why_never(num_steps)
