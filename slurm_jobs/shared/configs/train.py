"""Config of the built-in `train` stage; its parts have modules of their own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

from slurm_jobs.shared.config import (
    Bounds,
    CheckedConfig,
    Count,
    CountOrZero,
    InputPath,
    NamedPath,
    Positive,
    SomeKeysOf,
    problems_in,
    with_keys_of,
)
from slurm_jobs.shared.configs.model_parts import AdaptersConfig, ModelConfig, QuantizeConfig
from slurm_jobs.shared.configs.stages import Columns
from slurm_jobs.shared.configs.training_parts import (
    AccelerateConfig,
    AugmentConfig,
    BatchingConfig,
    CheckpointConfig,
    CompileConfig,
    OptimizerConfig,
    ProfileConfig,
    SamplerConfig,
    ScalerConfig,
    ScheduleConfig,
    ShardingConfig,
    StagingConfig,
    StreamConfig,
    TrackersConfig,
)
from slurm_jobs.shared.errors import did_you_mean
from slurm_jobs.shared.processors.model_types import SMALL_VLM

_NUM_ANSWERS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateConfig(CheckedConfig):
    """Held-out samples: answered after the last step, their loss measured during training."""

    manifest: InputPath | None = None
    """Held-out rows in the manifest format of `preprocess`; null disables evaluation. Prompts and
    limits are those of the data set's preprocessing."""
    columns: Columns | None = None
    """Columns of that manifest; by default those of `preprocess`."""
    image_root: InputPath | None = None
    """Folder that its relative image paths start from; by default the manifest's own folder."""
    images_within: NamedPath | None = None
    """Folder in or below which its images may be, in addition to `image_root`."""
    num_samples: Count | None = None
    """Number of rows to take from the start; null takes all."""
    every_steps: Count | None = None
    """Steps between two measurements of the held-out loss, counted through all phases. One more
    measurement follows the last step of each phase. Null disables them."""
    num_loss_samples: Count = 64
    """Rows of such a measurement, from the start of the manifest."""
    num_answers: CountOrZero = _NUM_ANSWERS
    """Number of these rows that are also answered and compared."""
    max_new_tokens: Count = 64
    """Longest answer in tokens."""
    batch_size: Count = 32
    """Samples that one rank generates at a time."""

    def is_evaluation_due(self, step: int, *, ends_phase: bool) -> bool:
        """Return whether a measurement comes after `step` steps of all phases."""
        return self.every_steps is not None and (ends_phase or step % self.every_steps == 0)

    def problems(self) -> Iterator[str]:
        """Yield problems of measurements without rows, or with fewer than are answered."""
        if self.every_steps is not None and self.manifest is None:
            yield (
                f"every_steps is {self.every_steps} and manifest is not given: give the held-out "
                "rows, or leave every_steps out"
            )
        answers, most = self.num_answers, self.num_loss_samples
        if answers > most and answers == _NUM_ANSWERS:  # probably left out
            yield (
                f"num_loss_samples is {most}, fewer than num_answers, which is {answers} by "
                f"default: give num_answers, too: {most} or less"
            )
        elif answers > most:
            yield f"num_answers is {answers}: give num_loss_samples ({most}) or less"


# Names in `learn` for parts of a model.


Part: TypeAlias = Literal["vision", "projector", "language", "heads", "adapters"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a model; each parameter belongs to one of them."""
ALL = "all"
"""Name of all parts except the adapters."""
_WORD = re.compile(r"[A-Za-z0-9_-]+")
"""Pattern of a single word: names of parameters have a dot, and patterns of them `*`, `?` or `[`.
"""


_OWN_NAMES = ("vision", "projector", "language", "heads")
"""Prefixes of the names of all parameters of a `small_vlm`."""
_MEANT = {"vis": "vision", "proj": "projector", "connector": "projector", "merger": "projector"}
"""Part that is meant by a family's names with these letters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelConfig(CheckedConfig):
    """Level of a chain: one of the assistant's turns."""

    name: str
    """Name of the level, in results."""
    head: Literal["text", "classes"] = "text"
    """`text`: the answer is learned token by token. `classes`: a linear layer on the hidden state
    before the answer predicts which of `classes` it is; later levels read the answer's text."""
    classes: tuple[str, ...] = ()
    """All possible answers of a level with `head: classes`, as in the manifest."""
    weight: Positive = 1.0
    """Weight of this level's mean loss in the sum over all levels."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if self.head == "text" and self.classes:
            yield f"level {self.name}: classes are given and head is text: set `head: classes`"
        if self.head == "classes" and len(set(self.classes)) < max(2, len(self.classes)):
            yield f"level {self.name}: give two classes or more, each once"
        for name in self.classes:
            if name != name.strip():
                yield (
                    f"level {self.name}: the class {name!r} has white space around it, without "
                    f"which answers are read and compared; write {name.strip()!r}"
                )


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
OWN = (
    "learn",
    "dataset",
    "global_batch_size",
    "num_microbatches",
    "batching",
    "optimizer",
    "schedule",
)
"""Fields of a training that a phase may override."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseConfig(CheckedConfig):
    """Phase of a training; missing keys are the training's, also within mappings."""

    name: str
    """Name of the phase, in results and folders: small letters, digits, `-` and `_`."""
    learn: tuple[str, ...] | None = None
    """Parts that learn in the phase, with values as in the training's `learn`. Null: `adapters` if
    there are some, else `all`."""
    num_steps: Count | None = None
    """Optimizer steps; exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over its data set, rounded down to whole steps."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote, with the same processor as the other phases'."""
    global_batch_size: Count | None = None
    """Samples in one optimizer step."""
    num_microbatches: Count | Literal["auto"] | None = None
    """Number of pieces into which each rank cuts its share of a step; `auto` as in the training."""
    batching: Annotated[Mapping[str, Any], SomeKeysOf(BatchingConfig)] | None = None
    """Composition of batches and rows; missing keys are the training's."""
    optimizer: Annotated[Mapping[str, Any], SomeKeysOf(OptimizerConfig)] | None = None
    """AdamW's settings; missing keys are the training's. Its state starts empty in each phase."""
    schedule: Annotated[Mapping[str, Any], SomeKeysOf(ScheduleConfig)] | None = None
    """Learning rate over the phase's own steps; missing keys are the training's."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if not _NAME.fullmatch(self.name):
            yield f"name is {self.name!r}: use small letters, digits, - and _ (projector)"
        if (self.num_steps is None) == (self.num_epochs is None):
            given = "neither is" if self.num_steps is None else "both are"
            yield f"phase {self.name}: of num_steps and num_epochs {given} given: give exactly one"


def own_values(config: TrainConfig, phase: PhaseConfig) -> dict[str, Any]:
    """Return the values that a phase overrides, by the names of the training's fields.

    Mappings are complete: their missing keys are the training's.
    """
    given = {name: getattr(phase, name) for name in OWN}
    return {
        name: with_keys_of(getattr(config, name), value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }


def as_training(config: TrainConfig, number: int) -> TrainConfig:
    """Return the config of a training with only the phase `number`, counted from 0.

    Raises:
        ValueError: the phase is invalid as a training.
    """
    phase = config.phases[number]
    learns_adapters = phase.learn is None or "adapters" in phase.learn
    return dataclasses.replace(
        config,
        phases=(),
        adapters=config.adapters if learns_adapters else None,
        # Also without it: the hash of the base contains it.
        quantize=config.quantize if learns_adapters else None,
        profile=ProfileConfig(),  # its steps are those of all phases
        seed=config.seed + number,  # or each phase would begin with the samples of the one before
        num_steps=phase.num_steps,
        num_epochs=phase.num_epochs,
        **own_values(config, phase),
    )


# Conflicts between keys of `TrainConfig`; each function yields messages.


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
        if _WORD.fullmatch(name) and name not in {*PARTS, ALL}:
            yield (
                f"learn has {name!r}, which is neither a part ({', '.join(PARTS)}, {ALL}) nor a "
                f"pattern of parameter names (*.layers.1.*){did_you_mean(name, (*PARTS, ALL))}"
            )
        first, dot, _ = name.partition(".")
        is_foreign = dot and _WORD.fullmatch(first) and first not in _OWN_NAMES
        if is_foreign and config.model.type == SMALL_VLM:
            meant = next((part for letters, part in _MEANT.items() if letters in name), "language")
            yield (
                f"learn has {name!r}, and model.type is small_vlm, whose parameters have names "
                f"that begin with {', '.join(f'{prefix}.' for prefix in _OWN_NAMES[:-1])} or "
                f"{_OWN_NAMES[-1]}.: write for example `{meant}.*`"
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


DEFAULT_NUM_LANES = 8
MAY_CHANGE = (
    "dataset",  # its content is compared by its own fingerprint
    "device",
    "strategy",
    "accelerate",
    "sharding",
    "activation_checkpointing",
    "compile",
    "attention",
    "precision",
    "tf32",
    "scaler",
    "num_microbatches",
    "memory_share",
    "checkpoint",
    "evaluate",
    "num_loader_threads",
    "num_prefetch_batches",
    "staging",
    "num_compute_threads",
    "deterministic",
    "collective_timeout_min",
    "stall_timeout_min",
    "log_every_steps",
    "timing",
    "trackers",
    "sampler",
    "profile",
)
"""Fields of `TrainConfig` that may change when a training continues from its checkpoints: they
change speed, memory or the last bits, but not the order of the samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(CheckedConfig):
    """Config of the `train` stage."""

    device: Literal["cuda", "cpu"] = "cuda"
    """`cuda` fails at once if a rank sees no GPU, because there is no fallback to the CPU."""
    dataset: InputPath | None = None
    """Folder that `consolidate` wrote; default: the output of the `consolidate` stage before."""
    model: ModelConfig = ModelConfig()
    """Model to train, and its initial weights."""
    adapters: AdaptersConfig | None = None
    """LoRA: small matrices that learn next to frozen layers; null adds none."""
    quantize: QuantizeConfig | None = None
    """QLoRA: frozen layers in 4 bits, which need adapters. Null quantises none."""
    learn: tuple[str, ...] | None = None
    """Parts that learn; all others are frozen. Values are parts (`vision`, `projector`, `language`,
    `heads`, `adapters`, `all` for all but adapters) or patterns of parameter names
    (`model.visual.blocks.3?.*` for 30 to 39). Null: `adapters` if there are some, else `all`. With
    phases, each phase has its own, and this key is not allowed."""
    levels: tuple[LevelConfig, ...] = ()
    """Chained targets, one for each assistant turn of a sample; a level reads those before it."""
    strategy: Literal["fsdp2", "ddp", "single", "accelerate"] = "fsdp2"
    """`fsdp2` shards parameters, gradients and optimizer over the ranks. Under `ddp` every rank has
    all of them, and gradients are averaged. `single` is one rank. `accelerate` follows a file of
    that library."""
    accelerate: AccelerateConfig | None = None
    """File of `strategy: accelerate`."""
    sharding: ShardingConfig = ShardingConfig()
    """Sharding under `fsdp2`."""
    activation_checkpointing: bool = False
    """Computes each layer of both towers again in the backward pass, with any strategy. A layer
    then stores only its inputs, for a third more work. Results are the same to the last bit."""
    compile: CompileConfig | None = None
    """`torch.compile` for each layer of a tower, with any strategy; null compiles nothing."""
    attention: Literal["auto", "varlen", "dense"] = "auto"
    """Separation of packed samples, and of Qwen's pictures of different sizes. `varlen`: the kernel
    receives the sample boundaries, which is slow on a CPU. `dense`: packed rows get a mask of row x
    row, and pictures of one size share a call. `auto`: `varlen` in half precision on GPUs of
    compute capability 8 and up (A100), otherwise `dense`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`auto`: bf16 on GPUs of compute capability 8 and up (A100), fp16 with a scaled loss on those
    of 7 (V100), fp32 on older ones and on CPUs. Weights and optimizer state are fp32 in any
    case."""
    tf32: bool = False
    """Computes products in fp32 as TF32 on GPUs of compute capability 8 and up: 10 bits of mantissa
    instead of 23, several times as fast. Matters most under `precision: fp32`."""
    scaler: ScalerConfig = ScalerConfig()
    """Scaling of the loss under fp16."""
    phases: tuple[PhaseConfig, ...] = ()
    """Consecutive parts of the training; each has its own length."""
    num_steps: Count | None = None
    """Optimizer steps; without phases exactly one of `num_steps` and `num_epochs` is given."""
    num_epochs: Positive | None = None
    """Passes over the data set, rounded down to whole steps."""
    global_batch_size: Count = 64
    """Samples in one optimizer step, over all ranks and microbatches. With `batching.kind: packed`
    it is an average: the number of rows is the nearest multiple of `num_lanes`."""
    num_microbatches: Count | Literal["auto"] = 1
    """Number of pieces into which each rank cuts its share of a step, to save memory; the step's
    result stays the same. `auto`: the fewest for which `memory_share` leaves room, found by trials
    before the first step."""
    memory_share: Annotated[float, Bounds(gt=0, le=1)] = 0.9
    """For `num_microbatches: auto`: share of a GPU's memory (on a CPU: of the rank's part of the
    job's) that the heaviest microbatch may fill. The rest is for gaps between tensors."""
    num_lanes: Count = DEFAULT_NUM_LANES
    """Number of equal streams into which the data is divided. It must be a multiple of the number
    of ranks. The order of samples depends on it and the seed, not on the number of ranks."""
    batching: BatchingConfig = BatchingConfig()
    """Composition of batches and rows."""
    reader: Literal["index", "webdataset"] = "index"
    """`index` reads any sample directly: exact order, exact resume, any number of ranks.
    `webdataset` streams shards through that library, and promises none of these."""
    stream: StreamConfig = StreamConfig()
    """Source of samples for `reader: webdataset`."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of pictures when they are read."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW's settings."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate as a function of the step."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Schedule of checkpoints, and how many are kept."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Generation on held-out samples after the last step."""
    num_loader_threads: Count = 2
    """Threads of each rank that read and decode."""
    num_prefetch_batches: Count = 4
    """Steps that the loader may be ahead."""
    staging: StagingConfig = StagingConfig()
    """Copying the data set to each node's own disk."""
    num_compute_threads: Count | None = None
    """Threads of one CPU operation in each rank. Null takes SLURM_CPUS_PER_TASK, or an equal share
    of the node if that is not set. On a CPU the last bits of the weights depend on it."""
    deterministic: bool = False
    """Refuse GPU kernels that are not deterministic, which makes training slower. CPU runs are
    always deterministic."""
    collective_timeout_min: Positive = 10.0
    """Time that a rank waits for the others before it fails. Staging in, reading weights, packing
    and the export do not count."""
    stall_timeout_min: Positive | None = 30.0
    """Time without progress of any rank after which the attempt ends and names the responsible
    rank. It is at least ten times the median step, and four times as long outside of steps. Null
    waits until the time limit. Under Slurm give 2 or more, because a shared file system may show
    progress a minute late."""
    seed: CountOrZero = 0
    """Seed of random weights and the order of samples."""
    log_every_steps: Count = 50
    """Steps between two lines in the log."""
    timing: Literal["events", "sync"] = "events"
    """`events` reads the GPU's times later, and waits for nothing. `sync` makes the host wait for
    the GPU at each border of a step phase, so that steps get slower."""
    trackers: TrackersConfig = TrackersConfig()
    """TensorBoard and other trackers of the course of the training."""
    sampler: SamplerConfig = SamplerConfig()
    """Recording of the load of each node."""
    profile: ProfileConfig = ProfileConfig()
    """Steps that PyTorch's profiler records."""

    def problems(self) -> list[str]:
        """Return one message for each broken rule, with field, value and remedy."""
        return train_problems(self)

    @property
    def learning_parts(self) -> tuple[str, ...]:
        """Return `learn`, or its default."""
        if self.learn is not None:
            return self.learn
        return ("all",) if self.adapters is None else ("adapters",)

    @property
    def has_trials(self) -> bool:
        """Return whether passes run before the first step, to choose how batches are made."""
        return self.batching.kind == "auto" or self.num_microbatches == "auto"


MEASURE_RUN = "measure"
"""Name of the trial among the entry points of the compute node; specs cannot use it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureConfig(CheckedConfig):
    """Config of a trial."""

    train: TrainConfig
    """Training with one phase, whose `num_steps` are run."""
    num_kept_steps: CountOrZero = 0
    """Above 0: microbatches of so many steps are read before the first one and reused, so that no
    data is read during the steps."""
    num_dropped_steps: CountOrZero = 0
    """Above 0: before the step `drop_before`, from 0, microbatches of so many steps are read and
    dropped, so that data read ahead during slow first steps does not feed the measured ones."""
    drop_before: CountOrZero = 0
