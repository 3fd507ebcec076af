"""What the train stage's config refuses besides broken specs of `tests/golden`."""

import pytest

from slurm_jobs.formats.configs.model_parts import AdaptersConfig, QuantizeConfig
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import CompileConfig, OptimizerConfig, ShardingConfig
from slurm_jobs.formats.configs.training_phases import LevelConfig

QLORA = {"num_steps": 1, "adapters": AdaptersConfig(), "quantize": QuantizeConfig()}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_steps": 0}, "num_steps is 0"),
        ({"num_steps": 1, "seed": -1}, "seed is -1"),
        (
            {"num_steps": 1, "strategy": "ddp", "sharding": ShardingConfig(cpu_offload=True)},
            "strategy is ddp, which does not shard: leave sharding out",
        ),
        (
            {**QLORA, "learn": ("adapters", "language")},
            "learn names language, and quantize has the language model in 4 bits",
        ),
        (
            {**QLORA, "quantize": QuantizeConfig(storage="bf16"), "precision": "fp16"},
            r"bf16, precision is fp16 and strategy is fsdp2: .* `quantize: \{storage: uint8",
        ),
        (
            {**QLORA, "compile": CompileConfig()},
            "compile and quantize are given: .*; leave one of the two out",
        ),
        (
            {"num_steps": 1, "device": "cpu", "optimizer": OptimizerConfig(kind="paged_adamw")},
            "optimizer.kind is paged_adamw and device is cpu: .* set `kind: adamw`",
        ),
        (
            {
                "num_steps": 1,
                "optimizer": OptimizerConfig(kind="paged_adamw_8bit"),
                "sharding": ShardingConfig(cpu_offload=True),
            },
            "paged_adamw_8bit and sharding.cpu_offload is true: .* set `kind: adamw_8bit`",
        ),
        ({"num_steps": 1, "num_microbatches": 0}, "num_microbatches is 0; allowed is >= 1"),
        ({"num_steps": 1, "memory_share": 1.1}, "memory_share is 1.1; allowed is > 0 and <= 1"),
        (
            {"num_steps": 1, "num_microbatches": "auto", "reader": "webdataset"},
            "num_microbatches is auto and reader is webdataset: .* give num_microbatches as",
        ),
    ],
)
def test_config_refuses_by_name_value_and_remedy(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**values)


@pytest.mark.parametrize("towers", [(), ("language", "language")])
def test_compiling_nothing_or_something_twice_is_refused(towers):
    with pytest.raises(ValueError, match=r"compile.towers is \[.*\]: give `vision`, `language`"):
        CompileConfig(towers=towers)


@pytest.mark.parametrize("classes", [("red ", "green"), ("red", "red\n", "green")])
def test_classes_with_white_space_around_them_are_refused(classes):
    """No answer predicted as a class would be exact, and one class might be two."""
    with pytest.raises(ValueError, match=r"level colour: the class 'red.+' has .*; write 'red'"):
        LevelConfig(name="colour", head="classes", classes=classes)


def test_storage_that_fits_what_auto_may_mean_is_left_to_the_ranks():
    TrainConfig(**{**QLORA, "quantize": QuantizeConfig(storage="bf16")})
