"""PyTorch's profiler over some steps, and exposed communication from made-up events."""

import gzip
import json
import math

import pytest
import torch

from pipeline.timing.profiler import Profiling, make_profiling
from pipeline.timing.span_log import SpanLog
from slurm_jobs.formats.configs.training_parts import ProfileConfig
from slurm_jobs.formats.timings.profiler_files import (
    operators_path,
    operators_text_path,
    read_operators,
    trace_path,
)
from slurm_jobs.formats.timings.step_records import read_spans, spans_path
from tests.contexts import make_context

WEIGHT = torch.zeros(8, 8, requires_grad=True)


def make(tmp_path, rank=0, **config):
    spans = SpanLog(tmp_path, rank)
    return Profiling(ProfileConfig(**config), tmp_path, rank, spans, has_device=False)


def train(profiling, steps):
    """One matrix product forward, one back, a step."""
    with profiling:
        for _ in profiling.watch(steps):
            (torch.ones(4, 8) @ WEIGHT).sum().backward()


def num_products(table):
    return sum(row.num_calls for row in table.operators if row.name == "aten::mm")


def trace(tmp_path):
    with gzip.open(trace_path(tmp_path, 0), "rt") as stream:
        return json.load(stream)["traceEvents"]


def test_only_the_requested_steps_are_recorded(tmp_path):
    train(make(tmp_path, steps=(2, 4)), range(8))
    table = read_operators(operators_path(tmp_path, 0))
    assert (table.first_step, table.num_steps) == (2, 3)
    assert num_products(table) == 3 * 2
    names = {event["name"] for event in trace(tmp_path) if event["name"].startswith("step ")}
    assert names == {"step 2", "step 3", "step 4"}
    assert 0 < sum(row.self_cpu_s for row in table.operators) <= table.wall_s
    assert math.isclose(sum(row.cpu_share for row in table.operators), 1)
    assert "aten::mm" in operators_text_path(tmp_path, 0).read_text()
    assert {row.self_cpu_bytes for row in table.operators} == {None}


def test_the_first_step_of_a_training_can_be_recorded(tmp_path):
    train(make(tmp_path, steps=(0, 0)), range(3))
    assert num_products(read_operators(operators_path(tmp_path, 0))) == 2


def test_outside_the_steps_there_is_no_profiler(tmp_path, monkeypatch):
    profiling, live = make(tmp_path, steps=(2, 3)), []
    for step in range(6):
        profiling.on_step(step)
        live.append(torch.autograd._profiler_enabled())
    assert live == [False, False, True, True, False, False]
    monkeypatch.setattr("pipeline.timing.profiler.profile", None)  # making another would fail
    train(profiling, range(6, 50))
    train(make(tmp_path), range(50))
    train(make(tmp_path, rank=1, steps=(2, 3)), range(50))
    assert not operators_path(tmp_path, 1).exists()


def test_a_training_that_ends_within_the_range_leaves_what_was_recorded(tmp_path):
    train(make(tmp_path, steps=(2, 40)), range(5))
    table = read_operators(operators_path(tmp_path, 0))
    assert (table.first_step, table.num_steps) == (2, 3)
    assert num_products(table) == 3 * 2


def test_an_attempt_that_begins_within_the_range_records_the_rest(tmp_path):
    train(make(tmp_path, steps=(2, 6)), range(5, 9))
    table = read_operators(operators_path(tmp_path, 0))
    assert (table.first_step, table.num_steps) == (5, 2)


def test_an_attempt_outside_the_profiled_range_records_nothing(tmp_path):
    train(make(tmp_path, steps=(2, 6)), range(7, 9))
    train(make(tmp_path, steps=(5, 6)), range(5))  # ends while it warms up
    assert [path.name for path in tmp_path.iterdir()] == ["rank-00000.spans.jsonl"]
    assert not torch.autograd._profiler_enabled()


def test_memory_is_counted_on_request(tmp_path):
    train(make(tmp_path, steps=(1, 1), memory=True), range(3))
    rows = {row.name: row for row in read_operators(operators_path(tmp_path, 0)).operators}
    assert rows["aten::mm"].self_cpu_bytes >= 4 * 8 * 8  # the gradient; what is freed is taken off


def test_the_time_of_starting_and_writing_is_a_span(tmp_path):
    train(make(tmp_path, steps=(1, 2)), range(4))
    prepared, written = read_spans(spans_path(tmp_path, 0))[0]
    assert (prepared["name"], written["name"]) == ("profile_prepare", "profile_write")
    assert (written["first_step"], written["num_steps"]) == (1, 2)


def test_a_profile_that_cannot_be_written_does_not_fail_the_training(tmp_path, caplog):
    operators_path(tmp_path, 0).mkdir()  # a rename over a folder fails
    train(make(tmp_path, steps=(1, 2)), range(5))
    assert "the profile is dropped" in caplog.text
    assert not operators_text_path(tmp_path, 0).exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_an_error_of_the_training_is_raised_and_its_steps_are_written(tmp_path):
    def steps():
        yield from range(2)
        raise ValueError("the loss")

    with pytest.raises(ValueError, match="the loss"):
        train(make(tmp_path, steps=(0, 9)), steps())
    assert read_operators(operators_path(tmp_path, 0)).num_steps == 2


@pytest.mark.parametrize("steps", [(3,), (4, 3), (1, 2, 3), ()])
def test_what_is_no_range_is_refused(steps):
    with pytest.raises(ValueError, match=r"first and the last step"):
        ProfileConfig(steps=steps)


def test_no_rank_is_refused():
    with pytest.raises(ValueError, match="ranks is empty"):
        ProfileConfig(steps=(1, 2), ranks=())


def test_another_file_is_no_table_of_operators(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="'other'"):
        read_operators(path)


def test_a_training_on_cpus_is_profiled_as_such_when_the_node_has_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    context, spans = make_context("train", tmp_path), SpanLog(tmp_path, 0)
    for device in ("cpu", "cuda"):
        made = make_profiling(ProfileConfig(), context, spans, torch.device(device))
        assert made._has_device == (device == "cuda")
