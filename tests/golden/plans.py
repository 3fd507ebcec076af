"""What `slurm-jobs plan` prints of the shipped specs and of those in `specs/`: all sbatch texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.golden.command import GOLDEN, ROOT, run

OUTPUTS = GOLDEN / "plans"
SPECS = GOLDEN / "specs"
_ON_SLURM = ("--set", "cluster=../specs/slurm")
_ONE_GPU = ("--set", "stages.train.config.strategy=single")
_NO_CACHE = shutil.ignore_patterns("__pycache__")
_SETTINGS: dict[str, Sequence[str]] = {
    "limit": ("--limit", "100"),
    "overrides": (
        *("--set", "stages.train.resources.nodes=1"),
        *("--set", "stages.tokens.array.max_running=1"),
        *("--set", "environment.LEVEL='2'"),
    ),
    "no-scripts": ("--no-scripts",),
    "json": ("--json",),
}
"""More command lines, of `specs/pipeline.yaml`."""


def outputs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield file names and texts. Call inside `fixed_surroundings`."""
    folder.mkdir()
    shutil.copytree(ROOT / "configs", folder / "configs", ignore=_NO_CACHE)
    shutil.copytree(SPECS, folder / "specs", ignore=_NO_CACHE)
    _add_starter(folder / "configs")
    for spec in sorted((folder / "configs").glob("*.yaml")):
        words = (*_ON_SLURM, *(_ONE_GPU if spec.stem == "finetune" else ()))
        yield f"{spec.stem}.txt", _planned(folder, f"configs/{spec.name}", *words)
    yield "demo.local.txt", _planned(folder, "configs/demo.yaml")
    for spec in sorted((folder / "specs").glob("*.yaml")):
        yield f"specs.{spec.stem}.txt", _planned(folder, f"specs/{spec.name}")
    for name, words in _SETTINGS.items():
        yield f"specs.pipeline.{name}.txt", _planned(folder, "specs/pipeline.yaml", *words)


def _add_starter(folder: Path) -> None:
    """Copy the starter spec, with the data that it names."""
    shutil.copy(ROOT / "templates" / "starter" / "finetune.yaml", folder)
    (folder / "data").mkdir()
    (folder / "models" / "vlm").mkdir(parents=True)
    for name in ("tokenizer", "preprocessor_config", "processor_config", "config"):
        (folder / "models" / "vlm" / f"{name}.json").write_text("{}")
    (folder / "models" / "vlm" / "chat_template.jinja").touch()
    turns = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A cat."}]
    (folder / "data" / "a.jpg").write_bytes(b"GIF89a")
    row = json.dumps({"images": ["a.jpg"], "messages": turns})
    (folder / "data" / "train.jsonl").write_text(f"{row}\n" * 2000)


def _planned(folder: Path, spec: str, *words: str) -> str:
    output = run(folder, "plan", spec, *words)
    return f"exit code {output.exit_code}\n{output.stdout}{output.stderr}"
