"""Causes of slowness that are planted in real runs, and what the report must find of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLANTS = Path(__file__).parents[1] / "plants"

READS = "pipeline.data.dataset:ShardedDataset.gather"
"""Called once for each microbatch."""
ASSEMBLES = "pipeline.data.loader:assemble"
FORWARD = "pipeline.train.loop:losses_of"
CLIPS = "pipeline.train.loop:_clip"
EXCHANGES = "pipeline.train.ranks.process_group:Ranks.sums"
COUNTS = "pipeline.train.training_data.batches:StepCounter.__call__"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One training with something wrong with it, or nothing."""

    name: str
    """What is planted, in words: the row's name in docs/explanation/report-causes.md."""
    expected: frozenset[str] = frozenset()
    """Rules that must find it, `rule` or `rule:cause`; empty for a healthy run."""
    also: frozenset[str] = frozenset()
    """Rules that may find it, too, because it is so."""
    delays: Sequence[Mapping[str, Any]] = ()
    """For `tests/plants`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the training, beside the usual one."""
    num_ranks: int = 1
    num_busy_processes: int = 0
    """That compute all the time and are not the job's."""
    needs_link: bool = False
    """Whether a network card is made for it, which not every machine allows."""
    data: str = "plain"
    """Whose samples: all as long, or `uneven`."""


def named(*names: str) -> frozenset[str]:
    return frozenset(names)


HEALTHY = (
    Cause(name="nothing, one rank"),
    Cause(name="nothing, two ranks", num_ranks=2, config={"global_batch_size": 128}),
    Cause(
        name="nothing, texts of unequal length in full rows",
        data="uneven",
        config={"batching": {"kind": "packed", "max_tokens": 256}, "global_batch_size": 8},
    ),
)
SICK = (
    Cause(
        name="each read of a shard answers after 1.5 s",
        expected=named("data-wait:storage"),
        delays=[{"where": READS, "sleep_s": 1.5}],
    ),
    Cause(
        name="reads wait for the node's disk for 1.5 s",
        expected=named("data-wait:storage", "storage-queue"),
        delays=[{"where": READS, "disk_s": 1.5, "file": "{big}"}],
    ),
    Cause(
        name="15 MB a read come over a network card of 100 Mbit/s",
        expected=named("data-wait:storage", "network-full"),
        delays=[{"where": READS, "link_bytes": 15_000_000}],
        needs_link=True,
    ),
    Cause(
        name="0.5 s of decoding a batch, one loader thread, a core free",
        expected=named("data-wait:threads"),
        delays=[{"where": ASSEMBLES, "native_s": 0.5}],
        config={"num_loader_threads": 1, "global_batch_size": 16},
    ),
    Cause(
        name="1 s of decoding a batch, as many loader threads as cores",
        expected=named("data-wait:cores"),
        delays=[{"where": ASSEMBLES, "native_s": 1.0}],
    ),
    Cause(
        name="0.6 s of decoding a batch that one of four loader threads can do at a time",
        expected=named("data-wait:lock"),
        delays=[{"where": ASSEMBLES, "locked_s": 0.6}],
        config={"num_loader_threads": 4, "global_batch_size": 16},
    ),
    Cause(
        name="two processes that are not the job's compute on its two cores",
        expected=named("foreign-load"),
        num_busy_processes=2,
    ),
    Cause(
        name="one batch read ahead for four loader threads, 1 s each",
        expected=named("data-wait:read-ahead"),
        delays=[{"where": READS, "sleep_s": 1.0}],
        config={"num_loader_threads": 4, "num_prefetch_batches": 1},
    ),
    Cause(
        name="rank 1 sleeps 0.1 s before its forward pass",
        expected=named("straggler"),
        delays=[{"where": FORWARD, "sleep_s": 0.1, "rank": 1}],
        num_ranks=2,
        config={"global_batch_size": 128, "strategy": "ddp"},
    ),
    Cause(
        name="rank 1 sleeps 0.1 s before its update",
        expected=named("straggler"),
        delays=[{"where": CLIPS, "sleep_s": 0.1, "rank": 1}],
        num_ranks=2,
        config={"global_batch_size": 128, "strategy": "ddp"},
    ),
    Cause(
        name="reads of rank 1 answer after 2 s",
        expected=named("straggler", "data-wait:storage"),
        delays=[{"where": READS, "sleep_s": 2.0, "rank": 1}],
        num_ranks=2,
        config={"global_batch_size": 128},
    ),
    Cause(
        name="texts of unequal length in batches at random",
        expected=named("padding"),
        data="uneven",
        config={"global_batch_size": 16},
    ),
    Cause(
        name="the state is saved after each second step, and waited for",
        expected=named("checkpoint"),
        config={"checkpoint": {"every_min": None, "every_steps": 2, "mode": "sync"}},
    ),
    Cause(
        name="a held-out evaluation after every second step",
        expected=named("evaluation"),
        config={"evaluate": {"every_steps": 2, "num_answers": 8, "max_new_tokens": 8}},
    ),
    Cause(
        name="0.1 s a step that no phase covers",
        expected=named("unexplained"),
        delays=[{"where": COUNTS, "sleep_s": 0.1}],
    ),
    Cause(
        name="sharded ranks with little work a step, profiled",
        expected=named("exposed-communication"),
        also=named("meetings", "straggler", "unexplained"),
        num_ranks=2,
        config={"global_batch_size": 4, "num_lanes": 2, "profile": {"steps": [10, 20]}},
    ),
    Cause(
        name="each exchange of two ranks takes 20 ms longer",
        expected=named("meetings"),
        delays=[{"where": EXCHANGES, "sleep_s": 0.02}],
        num_ranks=2,
        config={"global_batch_size": 128},
    ),
)


def spec_of(cause: Cause, data: Mapping[str, Path]) -> str:
    """The YAML (as JSON, which is some) of a training that has the cause planted in it.

    `data` has the data set's folder by `Cause.data`, the held-out manifest as `held_out`, and as
    `big` a file that is larger than what is read at once.
    """
    config: dict[str, Any] = {
        "device": "cpu",
        "dataset": str(data[cause.data]),
        "model": {
            "vision": {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "patch_size": 16},
            "language": {"hidden_size": 128, "num_layers": 2, "num_heads": 4, "mlp_ratio": 2},
        },
        "num_steps": 30,
        "global_batch_size": 64,
        "num_compute_threads": 1,
        "strategy": "fsdp2" if cause.num_ranks > 1 else "single",
        "checkpoint": {"every_min": None},
        "sampler": {"every_s": 0.1},
        **cause.config,
    }
    if "evaluate" in config:
        config["evaluate"] = {"manifest": str(data["held_out"]), **config["evaluate"]}
    environment = {
        "PYTHONPATH": str(PLANTS),
        "TEST_PLANTS": json.dumps(cause.delays).replace("{big}", str(data["big"])),
    }
    cores = 2 // cause.num_ranks
    resources = {"tasks_per_node": cause.num_ranks, "cpus_per_task": cores, "timeout_min": 10}
    train = {"run": "train", "environment": environment, "resources": resources, "config": config}
    return json.dumps({"name": "planted", "cluster": "local.yaml", "stages": {"train": train}})
