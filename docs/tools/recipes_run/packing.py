"""The recipe `packing` at the small scale of its page, and the figures of that page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.tools.recipe_pages import ROOT, Speed, middle, read_speed, runs_told, table, type_verb

NUM_RUNS = 3
PICTURE = "docs/images/packing-recipe.png"
TIMED_S = 30
TRAININGS = {
    "train-shuffled": "`shuffled`: one chat per row, random order",
    "train-grouped": "`grouped`: one chat per row, similar lengths together",
    "train-packed": "`packed`: several chats per row",
}
STAGES_OF_NANOVLM = {
    "shuffled": "2, naive padding",
    "constrained": "3, constrained padding",
    "grouped": "",
    "greedy": "4, greedy packing",
    "ffd": "4, bin packing",
    "bfd": "",
    "knapsack": "5, knapsack",
    "exact": "",
}
"""Ways of batching, and which stage of nanoVLM's article describes each."""
SMALL = {
    "cluster": "clusters/local.yaml",
    "stages.chats.config": "{num_train: 1600, num_pictures: 120, image_size: 64}",
    "stages.preprocess.array.num_slices": "1",
    "stages.preprocess.config.max_tokens": "512",
    "stages.train.resources": "{tasks_per_node: 2, cpus_per_task: 1, timeout_min: 30}",
    "stages.train.config.device": "cpu",
    "stages.train.config.model": (
        "{vision: {hidden_size: 128, num_layers: 4}, language: {hidden_size: 128, num_layers: 2}}"
    ),
    "stages.train.config.num_compute_threads": "1",
    "stages.train.config.num_loader_threads": "1",
}
"""Two ranks on two cores, by gloo; the trainings take turns."""


def blocks(runs: Sequence[Path]) -> Mapping[str, str]:
    """The marked places of the page; draws the picture."""
    words = ["packing", str(runs[-1]), "--stage", "train-packed", "--seconds", str(TIMED_S)]
    made = json.loads(type_verb(*words, "--json", "--image", str(ROOT / PICTURE)))
    speeds = {stage: [read_speed(run, stage) for run in runs] for stage in TRAININGS}
    return {"ways": _ways(made), "speeds": _speeds(speeds), "worth": _worth(speeds)}


def _ways(made: Mapping[str, object]) -> str:
    head = [
        "way of batching", "stage of nanoVLM", "rows", "samples per row", "padding",
        "slowest rank over the mean", "seconds per 1,000 samples",
    ]  # fmt: skip
    ways = made["ways"]
    assert isinstance(ways, list)
    rows = [
        [
            f"`{way['name']}`",
            STAGES_OF_NANOVLM[way["name"]],
            f"{way['num_rows']:,}",
            f"{way['samples_per_row']:.1f}",
            f"{100 * way['padding_share']:.1f} %",
            f"{way['slowest_work'] / way['mean_work']:.3f}",
            f"{way['s_per_1000_samples']:.2f}" if "s_per_1000_samples" in way else "not timed",
        ]
        for way in ways
        if way["problem"] is None
    ]
    data_set = f"{made['num_samples']:,} samples, in rows of {made['max_tokens']} tokens."
    return "\n".join([table(head, rows), "", data_set])


def _speeds(speeds: Mapping[str, Sequence[Speed]]) -> str:
    head = [
        "batching", "padding", "token slots per second", "real tokens per second",
        "samples per second", "real tokens, times those of `shuffled`", "cores occupied by others",
    ]  # fmt: skip
    rows = [
        [
            name,
            f"{100 * statistics.mean(s.padding_share for s in speeds[stage]):.1f} %",
            middle([s.slots_per_s for s in speeds[stage]], ",.0f"),
            middle([s.tokens_per_s for s in speeds[stage]], ",.0f"),
            middle([s.samples_per_s for s in speeds[stage]], ".0f"),
            middle(_ratios(speeds, stage), ".2f"),
            f"{100 * statistics.median(s.core_wait_share for s in speeds[stage]):.0f} %",
        ]
        for stage, name in TRAININGS.items()
    ]
    return table(head, rows)


def _ratios(speeds: Mapping[str, Sequence[Speed]], stage: str) -> list[float]:
    """Return real tokens per second over those of `shuffled`, run by run."""
    pairs = zip(speeds[stage], speeds["train-shuffled"], strict=True)
    return [speed.tokens_per_s / base.tokens_per_s for speed, base in pairs]


def _worth(speeds: Mapping[str, Sequence[Speed]]) -> str:
    """Beside what was gained, what would be if each slot cost the same."""
    packed, base = speeds["train-packed"], speeds["train-shuffled"]
    slots = [p.slots_per_s / b.slots_per_s for p, b in zip(packed, base, strict=True)]
    fill = [
        (1 - p.padding_share) / (1 - b.padding_share) for p, b in zip(packed, base, strict=True)
    ]
    gained = _ratios(speeds, "train-packed")
    learned = ", ".join(
        f"{speeds[stage][0].num_samples:,} ({stage.removeprefix('train-')})" for stage in TRAININGS
    )
    return (
        f"Packed rows have {middle(fill, '.2f')} times as many real tokens per slot as shuffled "
        f"ones, but only {middle(slots, '.2f')} times as many slots per second. Together this is "
        f"{middle(gained, '.2f')} times as many real tokens per second. In its epoch, a training "
        f"learned from {learned} samples, because a last batch that is not full is left out. "
        f"Each figure is {runs_told(packed)}."
    )
