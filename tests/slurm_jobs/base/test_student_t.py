"""Student's t against the tables that every textbook prints."""

import pytest

from slurm_jobs.base.student_t import two_sided


@pytest.mark.parametrize(
    ("confidence", "num_degrees", "expected"),
    [
        *((0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 4, 2.776), (0.95, 10, 2.228)),
        *((0.95, 30, 2.042), (0.95, 120, 1.980), (0.95, 1e6, 1.960)),
        *((0.90, 5, 2.015), (0.99, 3, 5.841), (0.99, 60, 2.660), (0.5, 1, 1.000)),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence, num_degrees, expected):
    assert two_sided(confidence, num_degrees) == pytest.approx(expected, abs=6e-4)


def test_broken_degrees_lie_between_the_whole_ones():
    assert two_sided(0.95, 3) < two_sided(0.95, 2.5) < two_sided(0.95, 2)


@pytest.mark.parametrize(("confidence", "num_degrees"), [(0, 3), (1, 3), (0.95, 0), (0.95, -1)])
def test_what_is_out_of_range_is_refused(confidence, num_degrees):
    with pytest.raises(ValueError, match="degrees of freedom"):
        two_sided(confidence, num_degrees)
