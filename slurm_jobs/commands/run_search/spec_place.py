"""Name of a spec and folder of its runs, read without the checks that a submit needs."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.base.errors import SpecError
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.formats.expand import expand_path, expand_text
from slurm_jobs.spec.checks.path_checks import path_problems
from slurm_jobs.spec.marked_paths import resolve_marked
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.spec_files import Files, read_text_of
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.reader import read_yaml

_ANY_STAGES = {"stages": {"any": {"shell": "true"}}}


def name_and_runs_dir(file: Path) -> tuple[str, Path]:
    """Return a spec's name and absolute folder of runs, whatever is wrong with its other keys.

    Raises:
        SpecError: the file is not valid YAML, or one of these two keys is wrong.
    """
    files = Files(
        read_text=lambda path: read_text(Path(path)),
        exists=lambda path: Path(path).exists(),
        expand=expand_path,
        expand_text=expand_text,
    )
    document = read_yaml(read_text_of(str(file), files), str(file))
    values = document.value if isinstance(document.value, dict) else {}
    needed = {key: values[key] for key in ("name", "runs_dir") if key in values}
    spec, problems = validate_values(RunSpec, document, needed | _ANY_STAGES, ())
    if spec is None:
        raise SpecError([*document.problems] or problems)
    places = [(key,) for key in needed]
    problems = [problem for problem, path in document.repeated.items() if path in places]
    if problems:
        raise SpecError(problems)
    around = files.around(str(file.parent))
    plain, marked = resolve_marked(RunSpec, spec.model_dump(mode="json"), around)
    problems = list(path_problems(marked, document, files.holds))
    if problems:
        raise SpecError(problems)
    return plain["name"], Path(plain["runs_dir"])
