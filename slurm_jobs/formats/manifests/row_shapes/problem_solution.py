"""ms-swift's `problem` and `solution`, which are a question and its answer.

`ResponsePreprocessor` reads a `problem` as the question next to any of its names of answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_jobs.formats.manifests.keys import Meaning, normal
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues

KEYS: Mapping[str, Meaning] = {"problem": "prompt", "solution": "text"}

_ANSWERS = frozenset({"answer", "response", "output", "completion"})
"""Names of answers to a problem; a `caption` or `text` next to one describes the picture."""


def rewrite(row: RowValues) -> None:
    """Take the problem as the question of a row without one, and the solution if it has no answer.

    A solution next to an answer is its explanation, and is not read.
    """
    problem_key, solution_key = row.other_key("problem"), row.other_key("solution")
    if problem_key is None or row.has_own_names or row.filled("prompt"):
        return
    answers = row.filled("text")
    if answers:
        has_answer = _ANSWERS.issuperset(map(normal, answers))
    else:
        has_answer = solution_key is not None or row.other_key("answers") is not None
    if not has_answer:
        return
    row.held["prompt"] = {problem_key: row.others.pop(problem_key)}
    if not answers and solution_key is not None:
        row.held["text"] = {solution_key: row.others.pop(solution_key)}
