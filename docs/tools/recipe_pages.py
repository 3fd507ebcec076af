"""What the pages of recipes share: how a recipe is run, and how its figures come into its page.

A page has marked places (`<!-- NAME: begin -->`, `<!-- NAME: end -->`), of which two are filled for
every recipe: `command`, with what was typed, and `machine`. The others are the recipe's own, made
by `blocks` of its module in docs/tools/recipes_run/.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from docs.tools.make_readme_output import machine, replace_block
from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.formats.timings.step_records import read_steps

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers")
"""Those whose versions decide how fast a recipe is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Of one stage of one run, from its step records behind the warm-up."""

    num_steps: int
    """All of them, with the warm-up."""
    num_samples: int
    num_tokens: int
    """Real ones of all steps."""
    num_padding_tokens: int
    samples_per_s: float
    """With checkpoints in the time."""
    tokens_per_s: float
    """Real ones."""
    slots_per_s: float
    """Real ones and padding."""
    data_wait_share: float
    """Of the time of steps, 0 to 1."""
    move_share: float
    """What the guide's timer calls data: moving, beside forward and backward pass, 0 to 1."""
    core_wait_share: float
    """Of the time of steps in which the training's thread was ready, and others had the cores."""

    @property
    def padding_share(self) -> float:
        """Of all token slots, 0 to 1."""
        return self.num_padding_tokens / (self.num_tokens + self.num_padding_tokens)


def read_speed(run_dir: Path, stage: str) -> Speed:
    """Of the stage's first attempt: counts of all ranks, times of the mean rank."""
    folder = run_dir / "timing" / stage / "s00000.a0001"
    ranks: list[Any] = [read_steps(path).steps for path in sorted(folder.glob("rank-*.steps"))]

    def total(name: str, first: int = WARMUP_STEPS) -> float:
        return sum(float(steps[name][first:].sum(dtype="float64")) for steps in ranks)

    step_s, moved_s = total("step_s"), total("host_to_device_s")
    per_s = len(ranks) / step_s  # all ranks make the same steps at the same time
    return Speed(
        num_steps=len(ranks[0]),
        num_samples=int(total("num_samples", 0)),
        num_tokens=int(total("num_tokens", 0)),
        num_padding_tokens=int(total("num_padding_tokens", 0)),
        samples_per_s=total("num_samples") * per_s,
        tokens_per_s=total("num_tokens") * per_s,
        slots_per_s=(total("num_tokens") + total("num_padding_tokens")) * per_s,
        data_wait_share=total("data_wait_s") / step_s,
        move_share=moved_s / (moved_s + total("forward_s") + total("backward_s")),
        core_wait_share=total("core_wait_s") / step_s,
    )


def completion_of(run_dir: Path, stage: str) -> Any:
    """The record of a stage that is complete and has one task."""
    (path,) = (run_dir / "completions" / stage).glob("*.completed.json")
    return json.loads(path.read_text())


def result_of(run_dir: Path, stage: str) -> Any:
    """What the stage's function returned."""
    return completion_of(run_dir, stage)["result"]


def duration_s(run_dir: Path, stage: str) -> float:
    """From the start of its task to the end, with the imports of its process."""
    record = completion_of(run_dir, stage)
    return float(record["ended_unix_s"] - record["started_unix_s"])


def set_options(overrides: Mapping[str, str]) -> list[str]:
    """The words of `--set`."""
    return [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]


def shown_command(spec: str, overrides: Mapping[str, str]) -> str:
    """A block with what is typed, one override a line."""
    pairs = [f"--set {shlex.quote(f'{key}={value}')}" for key, value in overrides.items()]
    return "\n".join(["```console", " \\\n    ".join([f"$ slurm-jobs run {spec}", *pairs]), "```"])


def run_recipe(spec: str, overrides: Mapping[str, str]) -> Path:
    """Run it to its end, and give its run folder.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", "slurm_jobs", "run", spec, "--json", *set_options(overrides)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(json.loads(done.stdout)["run_dir"])


def type_verb(*words: str) -> str:
    """What a verb prints in a terminal of 80 columns, without blanks at the ends of lines.

    Raises:
        subprocess.CalledProcessError: its exit code is not 0.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "slurm_jobs", *words],
        cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


def middle(values: Sequence[float], form: str) -> str:
    """The median of runs, and from the lowest to the highest: `22.3 (21.0 to 24.1)`."""
    found = format(statistics.median(values), form)
    if len(values) == 1:
        return found
    return f"{found} ({min(values):{form}} to {max(values):{form}})"


def runs_told(runs: Sequence[object]) -> str:
    """What a figure that `middle` made is of."""
    return "of one run" if len(runs) == 1 else f"the median of {len(runs)} runs (lowest to highest)"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill_page(name: str, overrides: Mapping[str, str], blocks: Mapping[str, str]) -> None:
    """Write the recipe's page with all of its places filled.

    Raises:
        ValueError: the page lacks one of them.
    """
    path = ROOT / "docs" / "recipes" / f"{name}.md"
    page = path.read_text(encoding="utf-8")
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    filled = {
        "command": shown_command(f"configs/{name}.yaml", overrides),
        "machine": f"(On {machine()}; {versions}.)",
        **blocks,
    }
    for place, body in filled.items():
        if f"<!-- {place}: begin -->" not in page:
            message = f"{path}: no <!-- {place}: begin -->"
            raise ValueError(message)
        page = replace_block(page, place, body)
    path.write_text(page, encoding="utf-8")
