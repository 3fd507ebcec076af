"""Code of a user before and after a change."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.run.code_tree import CodeTree

USED = frozenset({"work.py", "helper.py"})
FILES = {
    "work.py": "import helper\n",
    "helper.py": "",
    "odd.py": "",
    "prompt.txt": "Describe.",
}


def tree(folder: Path, **changes: str | None) -> CodeTree:
    """Files of `FILES` with changes by name (`_` for the dot); None removes one."""
    files = {**FILES, **{name.replace("_", "."): text for name, text in changes.items()}}
    folder.mkdir()
    for name, text in files.items():
        if text is not None:
            (folder / name).write_text(text)
    return CodeTree({name: folder / name for name, text in files.items() if text is not None})
