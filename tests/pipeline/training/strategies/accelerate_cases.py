"""What the pair of ranks does with files of accelerate; beside `cases`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.pipeline.training.strategies.accelerate_shim import sharding_on_cpu
from tests.pipeline.training.strategies.cases import case
from tests.pipeline.training.strategies.trainer import Trainer

TEMPLATES = Path(__file__).parents[4] / "templates" / "accelerate"
LORA = {"adapters": {"rank": 4, "alpha": 8.0}}
DDP = {"distributed_type": "MULTI_CPU"}
BY_LAYER = {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
FSDP = {"distributed_type": "FSDP", "fsdp_config": BY_LAYER}


def fsdp(**keys: Any) -> dict[str, Any]:
    return {**FSDP, "fsdp_config": {**BY_LAYER, **keys}}


@contextlib.contextmanager
def written(trainer: Trainer, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of a training by such a file; on a CPU it can shard."""
    path = trainer.folder / "accelerate.yaml"
    path.write_text(yaml.safe_dump(values))
    with sharding_on_cpu():
        yield {"strategy": "accelerate", "accelerate": {"config": str(path)}}


def by_file(name: str, values: dict[str, Any], **options: Any) -> None:
    def train(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        with written(pair, values) as asked:
            return pair.train(**asked, **options)

    case(f"accelerate {name}")(train)


by_file("ddp", DDP)
by_file("fsdp2", FSDP)
by_file("size", fsdp(fsdp_auto_wrap_policy="SIZE_BASED_WRAP", fsdp_min_num_params=5000))
