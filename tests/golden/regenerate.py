"""Write all stored outputs again: `python -m tests.golden.regenerate [NAME ...]`.

Names are `broken_specs`, `command_lines`, `dataset`, `help`, `plans` and `stored_runs`; without
one, all of them. Read the diff before you commit it: every line is a change in behaviour or text.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.golden import broken_specs, dataset, plans, stored_runs, words
from tests.golden.command import fixed_surroundings


def _broken_specs(folder: Path) -> None:
    cases = [
        broken_specs.checked(case, folder / f"{number:04d}")
        for number, case in enumerate(broken_specs.read_cases())
    ]
    broken_specs.FILE.write_text(broken_specs.as_text(cases), encoding="utf-8")


def _command_lines(folder: Path) -> None:
    words.COMMAND_LINES.write_text(words.command_lines(folder / "lines"), encoding="utf-8")


def _help(folder: Path) -> None:
    texts = dict(words.help_texts(words.verbs(folder), folder / "help"))
    _write_all(words.HELP, {**texts, words.STORED_PYTHON.name: f"{words.PYTHON}\n"})


def _plans(folder: Path) -> None:
    _write_all(plans.OUTPUTS, dict(plans.outputs(folder / "plans")))


def _stored_runs(folder: Path) -> None:
    texts: dict[str, str] = {}
    for name in stored_runs.NAMES:
        texts |= stored_runs.outputs(name, folder / name)
    texts |= stored_runs.outputs_of_two(folder / "two")
    _write_all(stored_runs.OUTPUTS, texts)


def _write_all(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


_WRITERS: dict[str, Callable[[Path], None]] = {
    "broken_specs": _broken_specs,
    "command_lines": _command_lines,
    "help": _help,
    "plans": _plans,
    "stored_runs": _stored_runs,
}


def main(names: list[str]) -> None:
    """Regenerate the named outputs."""
    chosen = names or [*_WRITERS, "dataset"]
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            if name == "dataset":
                text = dataset.checksums(Path(folder) / "dataset")
                dataset.CHECKSUMS.write_text(text, encoding="utf-8")
            else:
                with fixed_surroundings(Path(folder)):
                    _WRITERS[name](Path(folder))
        print(f"wrote {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
