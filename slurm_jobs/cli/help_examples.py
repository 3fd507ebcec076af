"""The examples at the end of each verb's `--help`; a test parses every one."""

from __future__ import annotations

_WIDTH = 80
_INDENT = "  "
_DATED = "captions-20261121-080611-5b9e"
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "init": (
        ("slurm-jobs init", "asks what it must know"),
        ("slurm-jobs init --data photos --model models/vlm --yes", "asks nothing"),
        ("slurm-jobs init specs --recipe demo", "a recipe, into ./specs"),
        ("slurm-jobs init --local --recipe all", "all recipes, for this machine"),
    ),
    "check": (
        ("slurm-jobs check captions.yaml", "asks no scheduler"),
        ("slurm-jobs check captions.yaml --cluster", "also what the cluster would refuse"),
        ("slurm-jobs check captions.yaml --set stages.train.resources.nodes=4", ""),
    ),
    "plan": (
        ("slurm-jobs plan captions.yaml", "jobs and batch scripts"),
        ("slurm-jobs plan captions.yaml --no-scripts --limit 500", "the jobs alone"),
        ("slurm-jobs plan captions.yaml --explain", "what a resume would run again, and why"),
    ),
    "submit": (
        ("slurm-jobs submit captions.yaml --limit 500", "the whole chain on a few samples"),
        ("slurm-jobs submit captions.yaml", "all of it"),
        ("slurm-jobs submit captions.yaml --set stages.train.config.num_epochs=1", ""),
    ),
    "run": (
        ("slurm-jobs run configs/demo.yaml", "from pictures to a report, on this machine"),
        ("slurm-jobs run captions.yaml --limit 500", ""),
    ),
    "runs": (
        ("slurm-jobs runs", "in ./runs, or $SLURM_JOBS_RUNS_DIR"),
        ("slurm-jobs runs --dir /work/runs --number 5", ""),
        ("slurm-jobs runs --since 7d --status failed", "of the last seven days"),
        ("slurm-jobs runs --name 'captions*' --size", "and the space that they take"),
    ),
    "note": (
        ("slurm-jobs note captions-20261121 baseline, learning rate 1e-4", ""),
        ("slurm-jobs note captions-20261121", "prints it"),
        ("slurm-jobs note captions-20261121 --remove", ""),
    ),
    "status": (
        ("slurm-jobs status", "of the newest run"),
        ("slurm-jobs status captions.yaml", "of the newest run of that spec"),
        ("slurm-jobs status captions-20261121 --json", "by the start of the run's id"),
    ),
    "watch": (
        ("slurm-jobs watch", "the newest run; Ctrl-C only stops watching"),
        (f"slurm-jobs watch runs/{_DATED}", ""),
    ),
    "debug": (
        ("slurm-jobs debug captions embed", "the first slice that failed"),
        ("slurm-jobs debug captions embed --slice 7 --stop", "stop before its first line"),
        ("slurm-jobs debug captions embed --update-code", "your code as it is now"),
    ),
    "logs": (
        ("slurm-jobs logs", "of what failed, or runs"),
        ("slurm-jobs logs train --rank 0 --follow", "of the newest run"),
        ("slurm-jobs logs captions-20261121 preprocess --failed --tail 20", ""),
        ('slurm-jobs logs --grep "out of memory"', "in all stages"),
    ),
    "resume": (
        ("slurm-jobs resume --dry-run", "what would run, and why"),
        ("slurm-jobs resume", "run it"),
        ("slurm-jobs resume --again preprocess:0-3,7", "also what is complete"),
        (f"slurm-jobs resume runs/{_DATED} --set stages.train.resources.mem_gb=64", ""),
    ),
    "cancel": (
        ("slurm-jobs cancel", "the newest run; asks first"),
        (f"slurm-jobs cancel runs/{_DATED} --stage train --yes", ""),
    ),
    "clean": (
        ("slurm-jobs clean --older-than 30d --dry-run", "what would be removed"),
        (f"slurm-jobs clean runs/{_DATED}", "parts, checkpoints; asks first"),
        ("slurm-jobs clean --older-than 12w --keep report,model,metrics", ""),
        ("slurm-jobs clean captions-20261121 --all", "the whole run"),
    ),
    "report": (
        ("slurm-jobs report", "of the newest run"),
        ("slurm-jobs report captions.yaml --epochs 3", "and what 3 epochs would take"),
        ("slurm-jobs report --export steps.csv", "every step record, too"),
        ("slurm-jobs report --share captions.html", "a page for colleagues"),
    ),
    "compare": (
        ("slurm-jobs compare slow-20261121 fast-20261122", ""),
        ("slurm-jobs compare a1,a2,a3 b1,b2,b3", "repeats tell more"),
    ),
    "scaling": (
        ("slurm-jobs scaling one-gpu two-gpus four-gpus", ""),
        ("slurm-jobs scaling a1 a2 b1 b2 --warmup-steps 20", "repeats tell more"),
    ),
    "tune": (
        ("slurm-jobs tune captions.yaml --budget 30", "minutes for all trials"),
        (f"slurm-jobs tune captions.yaml --data runs/{_DATED}", "its data set"),
        ("slurm-jobs tune captions.yaml --out tuned.yaml", "where the new spec goes"),
    ),
    "profile": (
        ("slurm-jobs profile", "of the newest run"),
        ("slurm-jobs profile captions-20261121 --rank 3 --operators 30", ""),
    ),
    "verify": (
        ("slurm-jobs verify", "the data sets of the newest run"),
        (f"slurm-jobs verify runs/{_DATED} --stage consolidate", ""),
        ("slurm-jobs verify /data/captions --json", "a copy, wherever it came from"),
    ),
    "packing": (
        ("slurm-jobs packing captions.yaml", "its newest run's data set, its model"),
        (
            "slurm-jobs packing captions.yaml --set stages.train.config.batching.max_tokens=8192",
            "",
        ),
        ("slurm-jobs packing captions.yaml --image packing.png", "a picture, too"),
        ("slurm-jobs packing /data/captions --max-tokens 4096", "a data set without a spec"),
    ),
    "samples": (
        ("slurm-jobs samples", "three samples of the newest run, and the audit"),
        ("slurm-jobs samples captions.yaml --key 149 --key 7", "these rows of the manifest"),
        ("slurm-jobs samples --random 1 --num 50 --html samples.html", "a page with pictures"),
        ("slurm-jobs samples /data/captions --num 0 --limit 1000", "the audit of some alone"),
    ),
    "probe": (
        ("slurm-jobs probe captions.yaml", "two nodes as its training has them"),
        ('slurm-jobs probe captions.yaml --nodelist "gpu[01-04]" --nodes 4', ""),
        ("slurm-jobs probe probe-20261121", "what it measured, once more"),
    ),
    "doctor": (
        ("slurm-jobs doctor", "this machine, its Slurm, and a short job on its nodes"),
        ("slurm-jobs doctor captions.yaml --drill", "also test a requeue"),
        ("slurm-jobs doctor captions.yaml --no-nodes --all", "no job; all that is well, too"),
    ),
    "schema": (
        ("slurm-jobs schema", "of specs"),
        ("slurm-jobs schema --profile", "of cluster profiles"),
    ),
    "completion": (
        ("slurm-jobs completion bash", ""),
        ("slurm-jobs completion zsh", ""),
        ("slurm-jobs completion fish", ""),
    ),
}
"""Commands by verb, each with a comment if it is not obvious."""


def examples_text(verb: str) -> str:
    """Return the end of a command's help, in 80 columns; empty if it has no examples."""
    examples = EXAMPLES.get(verb, ())
    with_words = [len(command) for command, words in examples if words]
    column = len(_INDENT) + max(with_words, default=0) + 2
    lines = []
    for command, words in examples:
        line = f"{_INDENT}{command}"
        if words and column + len(words) <= _WIDTH:
            line = f"{line:{column}}{words}"
        elif words:
            line = f"{line}\n{_INDENT * 3}{words}"
        lines.append(_broken(line) if len(line) > _WIDTH and "\n" not in line else line)
    return "\n".join(["examples:", *lines]) if lines else ""


def _broken(line: str) -> str:
    """Break a long command into two lines for the shell."""
    before, option, after = line.rpartition(" --")
    return f"{before} \\\n{_INDENT * 3}{option.strip()}{after}"
