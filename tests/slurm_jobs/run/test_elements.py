import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.run_folder.orders import array_indices, element_of_slice, slices_of_element

slice_sets = st.sets(st.integers(min_value=0, max_value=5000), min_size=1, max_size=60)


@given(slice_sets, st.none() | st.integers(min_value=1, max_value=70))
def test_every_slice_has_one_element_and_every_element_its_slices(
    numbers: set[int], slices_per_task: int | None
) -> None:
    slices = tuple(sorted(numbers))
    indices = array_indices(slices, slices_per_task)
    found = [i for index in indices for i in slices_of_element(slices, slices_per_task, index)]
    assert found == list(slices)
    for index in indices:
        for slice_index in slices_of_element(slices, slices_per_task, index):
            assert element_of_slice(slices, slices_per_task, slice_index) == index


@pytest.mark.parametrize(
    ("slices_per_task", "indices"), [(None, (3, 7, 9)), (1, (0, 1, 2)), (2, (0, 1)), (5, (0,))]
)
def test_elements_have_their_slices_numbers_or_are_counted_from_0(
    slices_per_task: int | None, indices: tuple[int, ...]
) -> None:
    assert array_indices((3, 7, 9), slices_per_task) == indices
