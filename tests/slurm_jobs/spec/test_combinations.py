"""Names of the combinations of a matrix."""

import pytest

from slurm_jobs.spec.combinations import origin_of
from tests.slurm_jobs.spec.matrix_specs import HEAD, stages


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ("{p: ['x/y', 'x y']}", ["a-x_y", "a-2"]),  # one name for both
        ("{p: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, b]}", ["a-1", "a-b"]),
        ("{p: [taken, b]}", ["a-1", "a-b"]),  # the name of another stage
        ("{p: [2, '2']}", ["a-2", "a-3"]),  # the number is taken, too
    ],
)
def test_where_a_value_makes_no_name_its_number_does(matrix: str, expected: list[str]) -> None:
    text = HEAD + f"  a: {{shell: x, matrix: {matrix}}}\n  a-taken: {{shell: x}}\n"
    assert list(stages(text)) == [*expected, "a-taken"]


def test_the_name_in_the_file_is_found_again() -> None:
    assert origin_of("train-b-2", [{"task": "b", "nodes": 2}]) == "train"
    assert origin_of("my-train-2", [{"task": "x/y"}]) == "my-train"
    assert origin_of("train-b-2", None) == ""
