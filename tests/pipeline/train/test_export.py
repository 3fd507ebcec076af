"""Weights read back after saving."""

import contextlib
import re
import resource
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn

from pipeline.train import export
from pipeline.train.export import _put_in_place, _write, check_names, check_weights, export_model
from pipeline.train.ranks import Ranks
from slurm_jobs.shared.errors import StageError


def test_dropped_and_changed_tensors_are_found_after_saving(tmp_path):
    weights = {"a": torch.ones(2), "b": torch.ones(2), "c": torch.tensor([float("nan")])}
    save_file({"a": torch.ones(2), "b": torch.zeros(2)}, tmp_path / "1.safetensors")
    save_file({"c": weights["c"], "e": torch.ones(1)}, tmp_path / "2.safetensors")
    with pytest.raises(StageError, match=re.escape("(missing: d; unexpected: e; different: b)")):
        check_weights(tmp_path, {**weights, "d": torch.ones(1)})
    (tmp_path / "1.safetensors").unlink()
    with pytest.raises(StageError, match=re.escape("(missing: a, b)")):
        check_weights(tmp_path, {**weights, "e": torch.ones(1)})


def test_weights_that_gathering_dropped_are_named():
    with pytest.raises(StageError, match=r"missing: b; unexpected: x\.b"):
        check_names({"a", "b"}, {"a", "x.b"})
    with pytest.raises(StageError, match=r"missing: 0, 1, 2, 3, 4 and 2 more\)"):
        check_names({str(number) for number in range(7)}, set())


def write_model(folder, weights=b"w", tokenizer=b"t"):
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    return folder


def test_equal_export_stays_and_what_the_user_put_beside_it(tmp_path):
    folder = write_model(tmp_path / "model")
    (folder / "README.md").write_text("mine")
    _put_in_place(write_model(tmp_path / ".model.2.tmp"), folder)
    assert (folder / "README.md").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_file_that_would_come_before_those_of_the_export_does_not_stay(tmp_path):
    folder = write_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text("of an older processor")
    _put_in_place(write_model(tmp_path / ".model.2.tmp"), folder)
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "tokenizer.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("empty", ["model.safetensors", "tokenizer.json"])
def test_file_that_a_crash_left_empty_is_replaced(tmp_path, empty):
    folder = write_model(tmp_path / "model")
    (folder / empty).write_bytes(b"")
    _put_in_place(write_model(tmp_path / ".model.2.tmp"), folder)
    assert (folder / empty).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@contextlib.contextmanager
def full_disk(num_bytes_left):
    """No file grows beyond so many bytes: a real limit of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", ["weights", "processor"])
def test_export_without_room_says_where_and_what_to_do_and_leaves_nothing(tmp_path, kind):
    """The library of the weight files has errors of its own, others are the system's."""
    weights = {"a": torch.ones(4096)}

    def write(place):
        if kind == "weights":
            save_file(weights, place / "model.safetensors")
        else:
            (place / "tokenizer.json").write_bytes(bytes(16384))
        return weights

    words = rf"exported to {re.escape(str(tmp_path / 'model'))}: .*File too large.*: free space"
    with full_disk(1000), pytest.raises(StageError, match=words):
        _write(tmp_path / "model", 1, write)
    assert list(tmp_path.iterdir()) == []


def test_ranks_wait_for_a_slow_export_without_a_collective_that_times_out(tmp_path, monkeypatch):
    """Two threads with a store in memory; they have no process group to wait in."""
    monkeypatch.setattr(export, "get_model_state_dict", lambda model, options: model.state_dict())
    may_write, store = threading.Event(), dist.HashStore()
    monkeypatch.setattr(export, "_write", lambda *_: may_write.wait(60))

    def export_on(rank):
        ranks = Ranks(rank=rank, num_ranks=2, host_group=None, store=store)
        args = {"processor_dir": tmp_path, "ranks": ranks, "attempt": 1}
        return export_model(nn.Linear(1, 1), tmp_path, **args)

    with ThreadPoolExecutor() as pool:
        exports = [pool.submit(export_on, rank) for rank in range(2)]
        assert not wait(exports, timeout=0.2).done
        may_write.set()
        assert [each.result(60) for each in exports] == [tmp_path / "model"] * 2
