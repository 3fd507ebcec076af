"""A spec written to a real folder, and what `check` has to say of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load

Check = Callable[..., list[str]]
Notes = Callable[..., list[str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Problems as `LINE:COLUMN: message`; those of other files keep their file's name."""

    def run(text: str | bytes, *, overrides: tuple[str, ...] = (), **files: str) -> list[str]:
        (tmp_path / "dataset.json").write_text("{}")  # so that `dataset: .` names a finished one
        for name in ("a.png", "a.jpg", "in.jpg"):  # so that rows have an image
            (tmp_path / name).write_bytes(b"GIF89a")
        for name, content in files.items():
            (tmp_path / name.replace("__", ".")).write_text(content, encoding="utf-8")
        file = tmp_path / "spec.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        try:
            load(file, overrides=overrides, to_submit=True)
        except SpecError as error:
            lines = [str(problem).replace(f"{file}:", "", 1) for problem in error.problems]
            return [line.replace(f"{tmp_path}/", "") for line in lines]
        return []

    return run


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """Notes on a spec without problems, as `LINE:COLUMN: message`."""

    def run(text: str, *, overrides: tuple[str, ...] = ()) -> list[str]:
        file = tmp_path / "spec.yaml"
        file.write_text(text, encoding="utf-8")
        return [
            str(note).replace(f"{file}:", "", 1) for note in load(file, overrides=overrides).notes
        ]

    return run
