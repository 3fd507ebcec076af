"""What export and evaluation take after the last step: counted before the first, and warned of."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from pipeline.models.finetuning.adapters import merge_adapters
from pipeline.models.finetuning.packed_linear import dequantize_weights
from pipeline.train import export
from pipeline.train.memory.ending_memory import EndingNeed, ending_need, judge_ending
from pipeline.train.memory.host_memory import HostMemory
from tests.pipeline.train.memory.needs import SIZES, tensor
from tests.pipeline.train.preflight.cards import CPU, V100, V100_32
from tests.pipeline.train.tiny_runs import rows_of, tiny_config

GB = 10**9
HERE = torch.device("cpu")


def test_the_export_counts_unpacked_layers_and_merged_adapters():
    embed = tensor("embed", 100)
    layer = tensor("q.base_layer.weight", 300, itemsize=1, is_packed=True, num_weights=600)
    low = tensor("q.lora_A.default.weight", 10)
    sizes = dataclasses.replace(SIZES, parameters=(embed, layer, low))
    found = ending_need(sizes, evaluation_itemsize=2)
    assert found.export_bytes == (400 + 300 + 40) + 4 * 600 + 4 * 600
    assert found.evaluation_bytes == 2 * 700, "adapters are merged"
    whole = ending_need(dataclasses.replace(SIZES, parameters=(embed,)), evaluation_itemsize=None)
    assert (whole.export_bytes, whole.evaluation_bytes) == (400, 0), "gathered once"


def ending(evaluation_gb, *, export_gb=0, device=V100_32, host_gb=100, exports=True):
    need = EndingNeed(export_bytes=export_gb * GB, evaluation_bytes=evaluation_gb * GB)
    limit = host_gb * GB
    host = HostMemory(limit_bytes=limit, source="SLURM_MEM_PER_NODE", available_bytes=limit)
    options = {"exports": exports, "num_local_ranks": 4, "node_name": "node-3"}
    return list(judge_ending(need, card=device, host=host, **options))


CARD_TOO_SMALL = (
    "the evaluation after training will hold the whole model on each rank's card, 17.00 GB or "
    "more, but Tesla V100-SXM2-16GB (compute capability 7.0) has 16.90 GB: use cards with more "
    "memory, or disable it (`evaluate: {manifest: null, held_out: false}`)"
)
NODE_TOO_SMALL = (
    "the evaluation after training will read the whole model on each of the 4 ranks on node-3, "
    "68.00 GB or more together, but SLURM_MEM_PER_NODE gives 64.00 GB: request more memory "
    "(resources.mem_gb), or disable it (`evaluate: {manifest: null, held_out: false}`)"
)
EXPORT_TOO_LARGE = (
    "the export after training will take 62.00 GB or more of the memory of node-3, where rank 0 "
    "gathers the weights, but SLURM_MEM_PER_NODE gives 8.00 GB: request more memory "
    "(resources.mem_gb)"
)


@pytest.mark.parametrize(
    ("gb", "options", "warning"),
    [
        (17, {"device": V100_32}, None),
        (17, {"device": V100}, CARD_TOO_SMALL),
        (17, {"host_gb": 64, "device": CPU}, NODE_TOO_SMALL),
        (0, {"export_gb": 62, "host_gb": 8}, EXPORT_TOO_LARGE),
        (0, {"export_gb": 62, "host_gb": 8, "exports": False}, None),
    ],
    ids=["it fits", "a card", "all ranks of a node", "the export on rank 0", "no export"],
)
def test_too_little_memory_at_the_end_is_a_warning_with_a_remedy(gb, options, warning):
    assert ending(gb, **options) == ([] if warning is None else [warning])


@pytest.mark.parametrize("quantize", [None, {"kind": "nf4"}], ids=["fp32", "nf4"])
def test_what_is_counted_is_what_an_export_holds_and_an_evaluation_loads(
    made, make_train_run, monkeypatch, quantize
):
    held = {}

    def hold(model, weights, *rest):
        whole = dequantize_weights(model, weights, HERE)
        merged = merge_adapters(model, whole)
        pieces = [*weights.values(), *whole.values(), *merged.values()]
        held.update({t.untyped_storage().data_ptr(): t.numel() * t.itemsize for t in pieces})
        return really_write(model, weights, *rest)

    really_write = export._write_model
    monkeypatch.setattr(export, "_write_model", hold)
    evaluate = {"manifest": rows_of(made), "max_new_tokens": 1}
    config = {"num_steps": 1, "adapters": {"rank": 4}, "quantize": quantize, "evaluate": evaluate}
    run = make_train_run(**tiny_config(made, **config))
    counted = run.run_here()["preflight"]["memory"]
    assert counted["export_bytes"] == sum(held.values())
    exported = load_file(run.output_dir / "model" / "model.safetensors")
    assert counted["evaluation_bytes"] == sum(4 * t.numel() for t in exported.values())
