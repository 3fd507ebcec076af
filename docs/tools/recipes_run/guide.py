"""The recipe `guide` at the small scale of its page, and the figures of that page."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.tools.recipe_pages import (
    Speed,
    duration_s,
    middle,
    read_speed,
    result_of,
    runs_told,
    table,
    type_verb,
)
from slurm_jobs.formats.timings.step_records import read_steps, steps_path

NUM_RUNS = 3
LOOPS = ("as-found", "quick-wins")
TRAININGS = ("shards", "polished")
PHASES = {
    "as-found": "as it was found",
    "quick-wins": "1: quick wins",
    "shards": "2: shards",
    "polished": "3: packed or grouped rows",
}
SMALL = {
    "cluster": "clusters/local.yaml",
    "stages.start.config.num_train": "1280",
    "stages.start.config.image_size": "64",
    "stages.start.config.vision": "{hidden_size: 64, num_layers: 2, num_heads: 4}",
    "stages.start.config.language": "{hidden_size: 64, num_layers: 2, num_heads: 4}",
    "stages.preprocess.array.num_slices": "1",
    **{
        f"stages.{stage}.{key}": value
        for stage in (*LOOPS, *TRAININGS)
        for key, value in {
            "resources": "{cpus_per_task: 2, timeout_min: 30}",
            "config.device": "cpu",
            "config.num_compute_threads": "1",
            ("config.num_workers" if stage in LOOPS else "config.num_loader_threads"): "1",
        }.items()
    },
    "stages.polished.config.compile": "null",
}
"""One thread computes and one process or thread loads, in every phase: two cores for each."""


def blocks(runs: Sequence[Path]) -> Mapping[str, str]:
    """The marked places of the page."""
    speeds = {stage: [read_speed(run, stage) for run in runs] for stage in PHASES}
    return {
        "phases": _phases(runs, speeds),
        "lines": _lines(runs[-1]),
        "saved": _saved(runs, speeds),
    }


def _phases(runs: Sequence[Path], speeds: Mapping[str, Sequence[Speed]]) -> str:
    head = [
        "phase", "samples per second", "what the guide's timer calls data", "waits for data",
        "times the phase before", "cores occupied by others",
    ]  # fmt: skip
    rows, before = [], None
    for stage, name in PHASES.items():
        found = speeds[stage]
        shares = [_guide_share(run, stage, speed) for run, speed in zip(runs, found, strict=True)]
        ratios = _ratios(found, before)
        rows.append(
            [
                name,
                middle([speed.samples_per_s for speed in found], ".0f"),
                middle([100 * share for share in shares], ".1f") + " %",
                middle([100 * speed.data_wait_share for speed in found], ".0f") + " %",
                middle(ratios, ".2f") if ratios else "",
                f"{100 * statistics.median(speed.core_wait_share for speed in found):.0f} %",
            ]
        )
        before = found
    return table(head, rows)


def _guide_share(run: Path, stage: str, speed: Speed) -> float:
    """By the guide's own timer in its loop; by the same laps of the records in the built-in one."""
    if stage in LOOPS:
        share: float = result_of(run, stage)["guide_data_share"]
        return share
    return speed.move_share


def _ratios(found: Sequence[Speed], before: Sequence[Speed] | None) -> list[float]:
    """Run by run."""
    if before is None:
        return []
    return [now.samples_per_s / then.samples_per_s for now, then in zip(found, before, strict=True)]


def _saved(runs: Sequence[Path], speeds: Mapping[str, Sequence[Speed]]) -> str:
    """What the guide foretells, beside what came: time of an epoch that a phase saves."""
    begun = result_of(runs[0], "start")
    foretold = {"quick-wins": "20 to 40 %", "shards": "70 to 90 % or more", "polished": "no figure"}
    bounds = {
        "quick-wins": [1 - speed.data_wait_share for speed in speeds["as-found"]],
        "shards": [speed.data_wait_share for speed in speeds["quick-wins"]],
    }
    rows, names = [], list(PHASES)
    for before, stage in itertools.pairwise(names):
        ratios = _ratios(speeds[stage], speeds[before])
        shares = [100 * (1 - 1 / ratio) for ratio in ratios]
        most = [100 * bound for bound in bounds.get(stage, [])]
        told = middle(most, ".0f") + " %" if most else ""
        rows.append([PHASES[stage], foretold[stage], told, middle(shares, ".0f") + " %"])
    first = speeds["as-found"][0]
    counts = {f"{phase[0].num_samples:,}" for phase in speeds.values()}
    once_s = [sum(duration_s(run, name) for name in ("preprocess", "consolidate")) for run in runs]
    epoch_s = [speed.num_samples / speed.samples_per_s for speed in speeds["quick-wins"]]
    about = (
        f"Each figure is {runs_told(runs)}. Each phase trained on "
        f"{' or '.join(sorted(counts))} samples ({first.num_tokens:,} real tokens as it was "
        "found), each with a photograph "
        f"of {begun['mean_photograph_bytes'] / 1000:.0f} kB, and the same "
        f"{begun['num_parameters']:,} parameters. Phase 3 chose {_chosen(runs)}. In phase 2, "
        f"`preprocess` and `consolidate` took {middle(once_s, '.0f')} s, which is needed only "
        f"once. An epoch of `quick-wins` took {middle(epoch_s, '.0f')} s."
    )
    head = [
        "phase", "time saved in the guide", "at most, by the records before", "time saved here",
    ]  # fmt: skip
    return "\n".join([table(head, rows), "", about])


def _chosen(runs: Sequence[Path]) -> str:
    """The rows that were faster when the training began, by number of runs."""
    files = (run / "data" / "polished" / "batching.json" for run in runs)
    kinds = Counter(json.loads(file.read_text())["kind"] for file in files)
    return ", ".join(f"`{kind}` rows in {num} of {len(runs)} runs" for kind, num in kinds.items())


def _lines(run: Path) -> str:
    """What the guide's timer printed of a few steps, and what the records have of the same."""
    log = type_verb("logs", str(run), "quick-wins", "--grep", "Step (2[0-2]):")
    lines = [line[line.index("Step ") :] for line in log.splitlines() if "Step " in line]
    folder = run / "timing" / "quick-wins" / "s00000.a0001"
    waits = read_steps(steps_path(folder, 0)).steps["data_wait_s"][20:23]
    waits_text = ", ".join(f"{wait:.2f}" for wait in waits)
    return "\n".join(
        [
            "```",
            *lines,
            "```",
            "",
            f"By the step records, these steps waited {waits_text} s for data.",
        ]
    )
