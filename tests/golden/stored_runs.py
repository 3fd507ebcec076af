"""Run folders of earlier versions, and what `status` and `report` say of them.

`stored_runs.tar.xz` holds five folders, each with one run in `runs/`:

- `finished` and `unfinished`: one local run of commit a858649, of the demo made small. One slice of
  `preprocess` failed and was resumed; then the training was killed after step 40 of 120. That is
  `unfinished`; `finished` is the same run after another resume. To keep them small, `code/*/lib`,
  images and (in `finished`) checkpoints are left out. As `lib` is missing, `made_by.json` names an
  order format that no version writes, so that a resume uses the current code.
- `starved-on-slurm`, `older-on-slurm`, `running-on-slurm`: records of a Slurm run that never took
  place. `older-on-slurm` has step records with the fields of the first version alone.
  `sacct.txt` is what `sacct` prints.

In their texts `@FOLDER@` stands for the folder above `runs/` and `@PYTHON@` for a Python.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import tarfile
from pathlib import Path
from typing import Any

from slurm_jobs.report.inputs.read_inputs import parents_first
from slurm_jobs.run_folder.paths import RunPaths
from tests.golden.command import GOLDEN, Output, run
from tests.slurm_jobs.report.fabricate_run import write_plan

ARCHIVE = GOLDEN / "stored_runs.tar.xz"
OUTPUTS = GOLDEN / "stored_runs"
NAMES = ("finished", "unfinished", "starved-on-slurm", "older-on-slurm", "running-on-slurm")
_VERBS = ("status", "report")
_MORE = {
    "finished": {
        "epochs": ("report", "--epochs", "3"),
        "logs": ("logs",),
        "logs-of-train": ("logs", "train", "--tail", "3"),
        "logs-with-pattern": ("logs", "--grep", "loss [0-9.]+,"),
        "nothing-to-resume": ("resume", "--dry-run"),
        "changed": ("resume", "--dry-run", "--set", "stages.train.config.num_steps=150"),
        "verified": ("verify",),
        "again": ("resume", "--dry-run", "--again", "preprocess:1"),
    },
    "unfinished": {"resume": ("resume", "--dry-run", "--json"), "cancel": ("cancel", "--yes")},
    "starved-on-slurm": {"epochs": ("report", "--epochs", "3"), "profile": ("profile",)},
}
"""More command lines by run and file: the verb, and the words after the run."""
_SQUEUE_HEADER = "JOBID|ARRAY_JOB_ID|STATE|REASON|SUBMIT_TIME|START_TIME|NODELIST|NAME|COMMAND"
_OF_THIS_LOOK = frozenset({"asked_unix_s", "age_s", "made_unix_s"})
"""Keys of JSON outputs whose values depend on when the command runs."""


def unpack(name: str, folder: Path) -> Path:
    """Put a stored run below the new `folder`, as a run of this user; return the run's folder."""
    folder.mkdir()
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if not member.name.startswith(f"{name}/"):
                continue
            target = folder / member.name.removeprefix(f"{name}/")
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            stream = archive.extractfile(member)
            assert stream is not None
            target.write_bytes(_relocated(stream.read(), folder))
    (run_dir,) = (folder / "runs").iterdir()
    _correct_sizes(run_dir)
    if not (run_dir / "plans").exists():  # those that never took place
        stages = json.loads((run_dir / "spec/resolved.json").read_text(encoding="utf-8"))["stages"]
        in_order = {name: stages[name] for name in parents_first(stages)}
        write_plan(RunPaths(run_dir), 1, in_order)
    facts = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    own = {"host": socket.gethostname(), "uid": os.getuid()}
    (run_dir / "run.json").write_text(
        json.dumps(facts | {key: value for key, value in own.items() if key in facts}),
        encoding="utf-8",
    )
    return run_dir


def _relocated(content: bytes, folder: Path) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return text.replace("@FOLDER@", str(folder)).replace("@PYTHON@", sys.executable).encode()


def _correct_sizes(run_dir: Path) -> None:
    """Have the completion records name the sizes that outputs with rewritten paths have now."""
    for record in (run_dir / "completions").glob("*/*.completed.json"):
        values = json.loads(record.read_text(encoding="utf-8"))
        sizes = values["result"].get("outputs", {})
        for name in sizes:
            path = run_dir / "data" / record.parent.name / name
            if path.suffix == ".json" and path.exists():
                sizes[name] = path.stat().st_size
        record.write_text(json.dumps(values), encoding="utf-8")


def outputs(name: str, folder: Path) -> dict[str, str]:
    """Return what `status` and `report` print of a stored run, by file name.

    Call inside `fixed_surroundings`.
    """
    run_dir = unpack(name, folder)
    if (folder / "sacct.txt").exists():
        _answer("sacct", (folder / "sacct.txt").read_text(encoding="utf-8"))
        _answer("squeue", _SQUEUE_HEADER + "\n")
    texts = {}
    for verb in _VERBS:
        as_json = run(folder, verb, str(run_dir), "--json")
        shown = run(folder, verb, str(run_dir))
        texts[f"{name}.{verb}.json"] = _plain_json(as_json)
        texts[f"{name}.{verb}.txt"] = _as_text(shown)
    for file, words in _MORE.get(name, {}).items():
        texts[f"{name}.{file}.txt"] = _as_text(run(folder, words[0], str(run_dir), *words[1:]))
    return texts


def outputs_of_two(folder: Path) -> dict[str, str]:
    """Return what the verbs that compare runs print, by file name.

    Call inside `fixed_surroundings`.
    """
    folder.mkdir()
    runs = [str(unpack(name, folder / name)) for name in ("starved-on-slurm", "older-on-slurm")]
    return {f"{verb}.txt": _as_text(run(folder, verb, *runs)) for verb in ("compare", "scaling")}


def _answer(program: str, text: str) -> None:
    """Have a program of Slurm print `text`, whatever it is asked."""
    path = Path(os.environ["PATH"]) / program
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{text}END\n", encoding="utf-8")
    path.chmod(0o755)


def _plain_json(output: Output) -> str:
    assert output.stderr == "", output.stderr
    return json.dumps(_without_times(json.loads(output.stdout)), indent=1, sort_keys=True) + "\n"


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "@TIME@" if key in _OF_THIS_LOOK and inner is not None else _without_times(inner)
            for key, inner in value.items()
        }
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


def _as_text(output: Output) -> str:
    text = f"exit code {output.exit_code}\n{output.stdout}{output.stderr}"
    return re.sub(r"(submitted to \w+|checked) [^():]+? ago", r"\1 @TIME@ ago", text)
