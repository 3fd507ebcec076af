"""Records of time whose header is damaged are refused with their path, whatever stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.timings.step_records import read_steps, steps_header
from slurm_jobs.formats.timings.system_readings import ReadingPacker, read_system

_FIELDS: list[Any] = [
    None,
    [],
    7,
    ["loss"],
    [["loss", "f5"]],
    [["loss"]],
    [["loss", "f4"], ["loss", "f4"]],
    [[3, "f4"]],
    [["loss", ["f4"]]],
]


def _changed(header: bytes, **values: Any) -> bytes:
    return (json.dumps({**json.loads(header), **values}) + "\n").encode()


@pytest.mark.parametrize("line", [b"[]\n", b"null\n", b"3\n", b'"x"\n', b"", b"{}\n"])
def test_a_first_line_that_is_no_header_is_refused(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(line)
    for read in (read_steps, read_system):
        with pytest.raises(ValueError, match="damaged"):
            read(path)


@pytest.mark.parametrize("fields", _FIELDS)
def test_fields_that_no_writer_names_are_refused(fields: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    for read, header in (
        (read_steps, steps_header({})),
        (read_system, ReadingPacker(1).header({})),
    ):
        path.write_bytes(_changed(header, fields=fields))
        with pytest.raises(ValueError, match="odd: "):
            read(path)


@pytest.mark.parametrize(
    "metadata",
    [
        *({"num_steps": value} for value in ("x", -1, 1.5, float("nan"), [1], 10**400)),
        *({"num_ranks": value} for value in (None, "two")),
        *({"phases": value} for value in ("abc", [{"training": 1}], [{"first_step": -1}], [1])),
        *({"node_name": value} for value in ("\x1b[2Jgpu", 7)),
    ],
)
def test_a_training_that_no_writer_describes_is_refused(metadata: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(steps_header(metadata))
    with pytest.raises(ValueError, match="odd: damaged: its header has invalid ranks or phases"):
        read_steps(path)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        {"cores": 3},
        {"gpus": [3]},
        *({"gpus": [{"memory_bytes": value}]} for value in ("much", 10**400)),
        {"links": {"eth0": 1}},
        {"links": [{"bits_per_s": 1}]},
    ],
)
def test_a_header_with_an_invalid_description_of_the_node_is_refused(
    metadata: Any, tmp_path: Path
) -> None:
    path = tmp_path / "odd"
    path.write_bytes(_changed(ReadingPacker(2).header({}), metadata=metadata))
    with pytest.raises(ValueError, match="odd: damaged"):
        read_system(path)


@pytest.mark.parametrize("num_gpus", [0, 1, 16])
def test_headers_as_they_are_written_are_read(num_gpus: int, tmp_path: Path) -> None:
    path = tmp_path / "whole"
    link = {"name": "eth0", "bits_per_s": None, "is_up": True}
    said = {"cores": [0, 1], "gpus": [{"memory_bytes": 1}] * num_gpus, "links": [link]}
    path.write_bytes(ReadingPacker(num_gpus).header(said))
    assert read_system(path).metadata == said
    older = ({}, {"num_ranks": 2, "phases": None}, {"phases": []}, {"node_name": "gpu-01"})
    for training in ({"num_ranks": 2, "num_steps": 10}, *older):
        path.write_bytes(steps_header(training))
        assert read_steps(path).metadata == training
