"""Weights read back after saving."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn

from pipeline.train import export
from pipeline.train.export import _write, check_names, check_weights, export_model
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageError
from tests.pipeline.train.conftest import full_disk


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


WEIGHTS = {"a": torch.ones(4096)}


def write_model(place):
    save_file(WEIGHTS, place / "model.safetensors")
    (place / "tokenizer.json").write_bytes(b"t")
    return WEIGHTS


@pytest.mark.parametrize(
    ("name", "content", "stays"),
    [
        ("README.md", b"mine", True),
        # it would come before the files of the export
        ("chat_template.jinja", b"of an older processor", False),
        # a crash left it empty
        ("model.safetensors", b"", False),
        ("tokenizer.json", b"", False),
    ],
)
def test_an_export_with_a_file_of_the_user_stays_unless_it_is_altered(
    tmp_path, name, content, stays
):
    folder = tmp_path / "model"
    _write(folder, 1, write_model)
    (folder / name).write_bytes(content)
    _write(folder, 2, write_model)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert (files.pop(name, None) == content) == stays
    assert files.keys() | {name} >= {"model.safetensors", "tokenizer.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", ["weights", "processor"])
def test_export_without_room_says_where_and_what_to_do_and_leaves_nothing(tmp_path, kind):
    """The library of the weight files has errors of its own, others are the system's."""

    def write(place):
        if kind == "weights":
            save_file(WEIGHTS, place / "model.safetensors")
        else:
            (place / "tokenizer.json").write_bytes(bytes(16384))
        return WEIGHTS

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
