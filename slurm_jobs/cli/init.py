"""`slurm-jobs init [FOLDER]`: copy the starter specs, cluster profiles and files of accelerate."""

from __future__ import annotations

import argparse
from pathlib import Path

from slurm_jobs.cli.arguments import add_json, command_text, print_json, shown_path
from slurm_jobs.common.errors import FileError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=Path("configs"))
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Copy; a file that is there already is never replaced."""
    from slurm_jobs.shipped import shipped_path

    folder = options.folder.absolute()
    sources = [
        (shipped_path("configs"), ""),
        (shipped_path("templates", "accelerate"), "accelerate/"),
    ]
    files = {
        f"{prefix}{path.relative_to(source)}": path
        for source, prefix in sources
        for path in source.rglob("*")
        if path.suffix in {".yaml", ".py"}
    }
    present = [name for name in sorted(files) if (folder / name).exists()]
    if present:
        names = ", ".join(present)
        message = f"{folder} holds {names} already; name another folder, or move them away"
        raise InputError(message)
    copied = [_copy(files[name], folder / name) for name in sorted(files)]
    if options.json:
        print_json({"files": [str(path) for path in copied]})
        return 0
    for path in copied:
        print(shown_path(path))
    demo = shown_path(folder / "demo.yaml")
    print(f"next: {command_text('plan', demo)}\nthen: {command_text('run', demo)}")
    return 0


def _copy(source: Path, target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    except OSError as error:
        message = f"cannot write {target}: {error.strerror}"
        raise FileError(message) from error
    return target
