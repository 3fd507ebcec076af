"""What comes after the last step is counted before the first, and warned of."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from pipeline.models.adapters import merge_adapters
from pipeline.models.quantize import dequantize_weights
from pipeline.train import export
from pipeline.train.host_memory import HostMemory
from pipeline.train.memory import EndingNeed, ModelSizes, TensorSizes, ending_need, judge_ending
from tests.pipeline.models.tiny import write_dataset, write_tiny
from tests.pipeline.train.preflight.cards import CPU, V100, V100_32
from tests.pipeline.train.tiny_runs import tiny_config

GB = 10**9


def sizes_of(*parameters: tuple[str, int, bool]) -> ModelSizes:
    """Names, numbers of weights, and whether they are in 4 bits."""
    return ModelSizes(
        parameters=tuple(
            TensorSizes(
                name=name,
                shape=(num // 2 if is_packed else num,),
                itemsize=1 if is_packed else 4,
                is_packed=is_packed,
                is_multiplied=True,
                num_weights=num,
                unit=None,
            )
            for name, num, is_packed in parameters
        ),
        buffer_bytes=0,
        hidden_size=8,
        num_layers=1,
    )


def test_the_export_holds_packed_layers_unpacked_and_adapted_ones_merged_beside_them():
    layer, low = ("q.base_layer.weight", 600, True), ("q.lora_A.default.weight", 10, False)
    found = ending_need(sizes_of(("embed", 100, False), layer, low), evaluation_itemsize=2)
    assert found.export_bytes == (400 + 300 + 40) + 4 * 600 + 4 * 600
    assert found.evaluation_bytes == 2 * 700, "adapters are merged"


def test_a_whole_model_without_an_evaluation_is_gathered_once():
    found = ending_need(sizes_of(("embed", 100, False)), evaluation_itemsize=None)
    assert (found.export_bytes, found.evaluation_bytes) == (400, 0)


def told(evaluation_gb, *, export_gb=0, device=V100_32, host_gb=100, exports=True):
    need = EndingNeed(export_bytes=export_gb * GB, evaluation_bytes=evaluation_gb * GB)
    host = HostMemory(
        limit_bytes=host_gb * GB, source="SLURM_MEM_PER_NODE", available_bytes=host_gb * GB
    )
    return list(
        judge_ending(
            need, card=device, host=host, exports=exports, num_local_ranks=4, node_name="node-3"
        )
    )


def test_an_evaluation_that_no_card_holds_is_told_with_what_leaves_it_out():
    assert told(17, device=V100_32) == []
    (warning,) = told(17, device=V100)
    assert warning == (
        "the evaluation after training will hold the whole model on each rank's card, 17.00 GB or "
        "more, but Tesla V100-SXM2-16GB (compute capability 7.0) has 16.90 GB: use cards with "
        "more memory, or disable it (`evaluate: {manifest: null}`)"
    )


def test_all_ranks_of_a_node_read_the_evaluated_model_at_once():
    (warning,) = told(17, host_gb=64, device=CPU)
    assert warning == (
        "the evaluation after training will read the whole model on each of the 4 ranks on node-3, "
        "68.00 GB or more together, but SLURM_MEM_PER_NODE gives 64.00 GB: request more memory "
        "(resources.mem_gb), or disable it (`evaluate: {manifest: null}`)"
    )


def test_rank_0_alone_has_the_export():
    (warning,) = told(0, export_gb=62, host_gb=8)
    assert warning == (
        "the export after training will take 62.00 GB or more of the memory of node-3, where rank "
        "0 gathers the weights, but SLURM_MEM_PER_NODE gives 8.00 GB: request more memory "
        "(resources.mem_gb)"
    )
    assert told(0, export_gb=62, host_gb=8, exports=False) == []


@pytest.mark.parametrize("quantize", [None, {"kind": "nf4"}], ids=["fp32", "nf4"])
def test_what_is_counted_is_what_an_export_holds_and_an_evaluation_loads(
    make_train_run, tmp_path, monkeypatch, quantize
):
    held = {}

    def hold(model, weights, *rest):
        whole = dequantize_weights(model, weights, torch.device("cpu"))
        merged = merge_adapters(model, whole)
        pieces = [*weights.values(), *whole.values(), *merged.values()]
        held.update({t.untyped_storage().data_ptr(): t.numel() * t.itemsize for t in pieces})
        return really_write(model, weights, *rest)

    really_write = export._write_model
    monkeypatch.setattr(export, "_write_model", hold)
    made = write_dataset("qwen2_5_vl", tmp_path), write_tiny("qwen2_5_vl", tmp_path / "model")
    rows = made[0].parents[1] / "source" / "rows.jsonl"
    evaluate = {"manifest": str(rows), "max_new_tokens": 1}
    config = {"num_steps": 1, "adapters": {"rank": 4}, "quantize": quantize, "evaluate": evaluate}
    run = make_train_run(**tiny_config(made, **config))
    counted = run.run_here()["preflight"]["memory"]
    assert counted["export_bytes"] == sum(held.values())
    exported = load_file(run.output_dir / "model" / "model.safetensors")
    assert counted["evaluation_bytes"] == sum(4 * t.numel() for t in exported.values())
