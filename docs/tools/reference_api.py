"""docs/reference/api.md, from the source of `slurm_jobs.api` and of what it gives back."""

from __future__ import annotations

import ast

import source_docs as source

INTRO = """\
# The Python API

`slurm_jobs.api` does what the verbs do, for notebooks and scripts; [an example that is \
run](../guides/code/notebook.md).
"""
VALUES = {
    "ResumeRequest": "slurm_jobs.commands.resume",
    "Resumption": "slurm_jobs.commands.resume",
    "RunStatus": "slurm_jobs.status.run_status",
    "StageStatus": "slurm_jobs.status.run_status",
    "SliceStatus": "slurm_jobs.status.slice_status",
    "StageSummary": "slurm_jobs.run_folder.run_values",
    "Plan": "slurm_jobs.plan.planned",
    "PlannedStage": "slurm_jobs.plan.planned",
    "PlannedJob": "slurm_jobs.plan.planned",
}
"""What it takes and gives back, and where that is defined."""
STAGE_VALUES = dict.fromkeys(
    ("TaskContext", "ParentStage"), "slurm_jobs.formats.records.task_context"
)
_API, _ERRORS = "slurm_jobs.api", "slurm_jobs.base.errors"


def page() -> str:
    """Functions, the class of a run, values, what a stage is told, and errors."""
    parts = [INTRO, "\n## Functions\n"]
    parts += [function(node, "###") for node in source.functions(source.tree(_API).body)]
    parts.append("\n## A run\n" + class_text(_API, "Run", "###"))
    parts.append("\n## Values\n")
    parts += [class_text(module, name, "###") for name, module in VALUES.items()]
    parts.append("\n## What a stage's function receives\n")
    parts += [class_text(module, name, "###") for name, module in STAGE_VALUES.items()]
    parts.append("\n## Errors\n\n" + errors())
    return "".join(parts)


def function(node: source.FunctionNode, level: str) -> str:
    """A function or method: how it is called, and what it says."""
    called = f"```python\n{source.signature(node)}\n```"
    return f"\n{level} {node.name}\n\n{called}\n\n{source.doc_of(node)}\n"


def class_text(module: str, name: str, level: str) -> str:
    """A class: its words, fields, properties and methods."""
    node = source.class_node(module, name)
    methods = list(source.functions(node.body))
    properties = [m for m in methods if source.is_property(m)]
    parts = [f"\n{level} {name}\n\n`{module}.{name}`\n\n{source.doc_of(node)}\n"]
    if source.fields(module, name):
        parts.append("\n" + source.field_table(module, name))
    if properties:
        rows = [(f"`{p.name}`", f"`{result(p)}`", source.doc_of(p)) for p in properties]
        parts.append("\n" + source.table(("property", "type", "meaning"), rows))
    parts += [function(method, f"{level}#") for method in methods if method not in properties]
    return "".join(parts)


def result(node: source.FunctionNode) -> str:
    """The type of what it gives back."""
    return ast.unparse(node.returns) if node.returns else ""


def errors() -> str:
    """The tree of errors."""
    nodes = [n for n in source.tree(_ERRORS).body if isinstance(n, ast.ClassDef)]
    rows = [
        (f"`{n.name}`", ", ".join(f"`{ast.unparse(b)}`" for b in n.bases), source.doc_of(n))
        for n in nodes
        if n.name.endswith("Error")
    ]
    table = source.table(("error", "is a", "means"), rows)
    return f"All in `{_ERRORS}`.\n\n{table}" + class_text(_ERRORS, "Problem", "###")
