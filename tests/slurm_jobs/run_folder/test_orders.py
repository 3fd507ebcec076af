"""Orders of jobs pass between versions, and say which slices are worked on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.formats.records.task_context import ParentStage
from slurm_jobs.run_folder.orders import (
    ORDER_FORMAT,
    JobOrder,
    array_indices,
    element_of_slice,
    order_to_json,
    read_order,
    slices_of_element,
)
from tests.slurm_jobs.worker.orders import order

PARENT = ParentStage(stage="p", run="shell", output_dir=Path("/run/p"), num_slices=2)
ORDER = dataclasses.replace(order(gpu=("a100", "v100")), num_again={3: 1}, parents=(PARENT,))
KEYS = {
    JobOrder: (
        "run_id run_dir token job_name scheduler stage run shell slices is_array slices_per_task "
        "max_running num_slices fingerprint num_again retries max_requeues config parents "
        "ancestor_output_dirs python start_script setup environment node_local_dir main_addr "
        "spec_dir limit resources log_dir nsight"
    ),
    JobResources: (
        "nodes tasks_per_node cpus_per_task gpus_per_node gpu mem_gb timeout_min signal_lead_s "
        "slurm gpu_kept"
    ),
    ParentStage: "stage run output_dir num_slices origin",
}


def read(tmp_path: Path, values: dict[str, Any]) -> JobOrder:
    write_json_atomic(tmp_path / "job.json", values)
    return read_order(tmp_path / "job.json")


def test_an_order_reads_back_as_it_was(tmp_path: Path) -> None:
    assert read(tmp_path, order_to_json(ORDER)) == ORDER


def test_an_order_of_an_earlier_version_has_the_defaults_of_what_it_lacks(tmp_path: Path) -> None:
    values = order_to_json(ORDER)
    del values["num_again"], values["slices_per_task"]
    del values["resources"]["gpu_kept"], values["parents"][0]["origin"]
    assert read(tmp_path, values) == dataclasses.replace(ORDER, num_again={})


def test_an_order_of_a_later_version_is_read_without_what_is_new(tmp_path: Path) -> None:
    values = order_to_json(ORDER)
    for part in (values, values["resources"], values["parents"][0]):
        part["of_tomorrow"] = [1]
    assert read(tmp_path, values) == ORDER


def test_the_keys_of_an_order_are_those_of_its_format() -> None:
    keys = {cls: {f.name for f in dataclasses.fields(cls)} for cls in KEYS}
    expected = {cls: set(names.split()) for cls, names in KEYS.items()}
    assert (ORDER_FORMAT, keys) == (2, expected), "raise ORDER_FORMAT, and write both down here"


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
