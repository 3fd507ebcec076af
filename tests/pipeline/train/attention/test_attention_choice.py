"""Which attention a run uses: by the bounds of segments, or with a mask."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.train.attention.attention_choice import AttentionFacts, choose_attention
from slurm_jobs.base.errors import StageConfigError

A100 = AttentionFacts(
    device_type="cuda",
    capability=(8, 0),
    precision="bf16",
    implementation="sdpa",
    text_type="qwen2_5_vl_text",
    takes_borders=True,
    images_see_ahead=False,
    head_sizes=(80, 128),
    dropout=0.0,
    packs=True,
    sizes_differ=True,
    why_no_varlen="",
)
IMAGES_SEE_AHEAD = (
    "the tokens of an image also see later ones of it in this model, which bounds of samples do "
    "not describe"
)
ON_CPU = {"device_type": "cpu", "capability": None, "precision": "fp32"}


@pytest.mark.parametrize(
    ("changes", "packed", "reason"),
    [
        ({}, "varlen", "compute capability 8.0, bf16"),
        ({"capability": (9, 0), "precision": "fp16"}, "varlen", "compute capability 9.0, fp16"),
        ({"packs": False}, "varlen", "compute capability 8.0, bf16"),
        ({"sizes_differ": False}, "varlen", "compute capability 8.0, bf16"),
        (
            {"packs": False, "sizes_differ": False},
            "dense",
            "no row has several samples, and images are of one size",
        ),
        (
            {"capability": (7, 0), "precision": "fp16"},
            "dense",
            "the GPU has compute capability 7.0, but the kernel needs 8.0 (A100)",
        ),
        (ON_CPU, "dense", "there is no varlen kernel for CPUs"),
        (
            {"precision": "fp32"},
            "dense",
            "precision is fp32, but the kernel needs bf16 or fp16",
        ),
        ({"head_sizes": (80, 256)}, "dense", "heads have 256 numbers, but the kernel supports 192"),
        ({"implementation": "eager"}, "dense", "model.attention is eager"),
        (
            {"takes_borders": False, "text_type": "gemma"},
            "dense",
            "language models of type gemma are not known to accept sample bounds",
        ),
        (
            {"dropout": 0.1},
            "dense",
            "the model has a dropout of 0.1 on scores, which varlen does not support",
        ),
        (
            {"images_see_ahead": True},
            "dense",
            IMAGES_SEE_AHEAD,
        ),
        ({"why_no_varlen": "torch 2.9 has none"}, "dense", "torch 2.9 has none"),
    ],
)
def test_borders_are_taken_where_the_kernel_runs(changes, packed, reason):
    facts = dataclasses.replace(A100, **changes)
    found = choose_attention("auto", facts)
    assert (found.packed, found.reason) == (packed, reason)
    assert choose_attention("dense", facts).packed == "dense"
    if packed == "dense" and changes not in (ON_CPU, {"packs": False, "sizes_differ": False}):
        with pytest.raises(StageConfigError, match=r"^attention is varlen, but "):
            choose_attention("varlen", facts)


def test_cpu_takes_borders_where_the_config_says_so():
    facts = dataclasses.replace(A100, **ON_CPU)
    assert choose_attention("varlen", facts).uses_varlen
    with pytest.raises(StageConfigError, match="set `attention: auto` or `dense`"):
        choose_attention("varlen", dataclasses.replace(facts, implementation="eager"))
