"""Models of transformers of every kind: what they see, learn, save and say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForImageTextToText, GenerationConfig

from pipeline.models.build import load_model
from pipeline.models.generation import arrange_prompts, before
from pipeline.models.hugging_face import HuggingFaceVLM, features_of
from pipeline.models.layouts.tower_arguments import plain_arguments
from pipeline.train.export import check_weights
from pipeline.train.optimizer.optimizers import parameter_groups
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.kinds import KINDS, encode_as_hugging_face
from tests.pipeline.models.passes import CPU, gradients, loss, packed_rows, prompt_of
from tests.pipeline.models.tiny import ROWS, _messages

SLOW_TO_LEARN = tuple(kind for kind in KINDS if kind != "llava")
"""`make test` learns one kind here and another on two ranks; these are among the slow tests."""


AMPLIFY = ("qwen3_5", "qwen3_5_moe")
"""Kinds in which a relative change of pixels by 1e-7 changes logits by 2e-5: delta nets divide what
they read by its size."""


def test_logits_are_those_of_the_model_called_as_its_processor_would(kind):
    model = kind.build().eval()
    head = model.output_head()
    for sample, row in zip(kind.samples(), ROWS, strict=True):
        inputs = to_device(kind.batch(model, [[sample]]), CPU, model.layout)
        with torch.no_grad():
            hidden, _ = model.hidden_states(inputs.input_ids, inputs.vision, inputs.position_ids)
            source = kind.dataset_dir.parents[1] / "source"
            theirs = encode_as_hugging_face(kind.name, _messages(*row), source, return_tensors="pt")
            if kind.name != "gemma3":
                theirs.pop("token_type_ids", None)
            expected = model.hf(**theirs).logits
        assert inputs.input_ids.tolist() == theirs["input_ids"].tolist()
        logits = head(hidden)
        if model.logit_cap is not None:
            logits = model.logit_cap * torch.tanh(logits / model.logit_cap)
        # Gemma 4's pictures are pooled by means here, and by products of matrices there.
        atol = 1e-4 if kind.name in (*AMPLIFY, "gemma4") else 1e-5
        torch.testing.assert_close(logits, expected, atol=atol, rtol=1e-4)


def test_packed_and_unpacked_losses_and_gradients_agree(kind):
    model, samples = kind.build(), kind.samples()
    rows, length = packed_rows(samples)
    losses, found = [], []
    for batch in (
        kind.batch(model, [[sample] for sample in samples]),
        kind.batch(model, rows, length),
    ):
        model.zero_grad()
        value = loss(model, batch)
        value.backward()
        losses.append(value.detach())
        found.append(gradients(model))
    alone = sum(loss(model, kind.batch(model, [[sample]])).detach() for sample in samples)
    torch.testing.assert_close(losses[0], alone, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(losses[1], alone, atol=1e-3, rtol=1e-5)
    assert found[0].keys() == found[1].keys()
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, atol=3e-4, rtol=3e-3)


def leaks() -> dict[str, Callable[[dict[str, Any], torch.Tensor], dict[str, Any]]]:
    """Ways to call a model with packed rows after which samples see each other."""
    return {
        "a mask of ones": lambda call, ones: call | {"attention_mask": ones},
        "no mask, default cache": lambda call, _ones: (
            call | {"attention_mask": None, "use_cache": True}
        ),
        "no mask, no positions": lambda call, _ones: (
            call | {"attention_mask": None, "position_ids": None}
        ),
    }


@pytest.mark.parametrize("name", ["llava_siglip", "smolvlm", "internvl", "qwen2_vl", "qwen3_vl"])
@pytest.mark.parametrize("leak", list(leaks()))
def test_samples_would_see_each_other_if_the_model_were_called_otherwise(
    make_kind, name, leak, monkeypatch
):
    # The control of the test above: each of these would have made it fail.
    kind = make_kind(name)
    model, samples = kind.build(), kind.samples()
    rows, length = packed_rows(samples)
    batch = kind.batch(model, rows, length)
    sound = loss(model, batch).detach()
    forward = model.language_model.forward

    def leaking(**call: Any) -> Any:
        ones = torch.ones_like(batch.input_ids)
        return forward(**leaks()[leak](call, ones))

    monkeypatch.setattr(model.language_model, "forward", leaking)
    assert abs(loss(model, batch).detach() - sound) > 1e-2


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_samples_would_see_each_other_without_the_fourth_row_of_positions(make_kind, name):
    kind = make_kind(name)
    model, samples = kind.build(), kind.samples()
    rows, length = packed_rows(samples)
    inputs = to_device(kind.batch(model, rows, length), CPU, model.layout)
    sound = loss_of(model, inputs).detach()
    assert inputs.position_ids.shape[0] == 4
    three = model(
        input_ids=inputs.input_ids,
        supervised=inputs.supervised,
        targets=inputs.targets,
        vision=inputs.vision,
        position_ids=inputs.position_ids[1:],
    )
    assert abs(three.detach().sum() - sound) > 1e-2


def test_every_parameter_gets_a_gradient_from_a_batch_without_images(kind):
    model, samples = kind.build(), kind.samples()
    loss(model, kind.batch(model, [[samples[2]]])).backward()
    lacking = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert lacking == []
    vision = {id(p) for p in model.vision_tower.parameters()}
    assert not any(p.grad.any() for p in model.parameters() if id(p) in vision and p.requires_grad)


def test_loss_of_a_batch_without_images_stays_finite_if_features_overflow(kind):
    model, samples = kind.build(), kind.samples()
    features = model.image_features
    model.image_features = lambda vision: _infinite(features(vision))
    assert torch.isfinite(loss(model, kind.batch(model, [[samples[2]]])))


def _infinite(found: Any) -> Any:
    """What a vision tower made, with an infinite and an undefined number in each tensor."""
    for tensor in features_of(found):
        tensor.data.view(-1)[0], tensor.data.view(-1)[1] = float("inf"), float("nan")
    return found


def test_batch_with_images_moves_every_parameter_that_is_not_frozen(kind):
    model, samples = kind.build(), kind.samples()
    loss(model, kind.batch(model, [[sample] for sample in samples])).backward()
    still = {n for n, p in model.named_parameters() if p.requires_grad and not p.grad.any()}
    # A bias of keys moves all scores of a query alike, which the softmax takes away.
    unused_embeddings = {n for n in still if "k_proj.bias" in n}
    assert still == unused_embeddings
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    unused = {"gemma4": "audio", "llava": ".vision_tower."}.get(kind.name.partition("_")[0])
    assert bool(frozen) == (unused is not None)
    assert all(unused in name for name in frozen)


def test_saved_weights_load_equal_under_the_names_of_the_original_files(kind, tmp_path):
    model = kind.build()
    written = model.save_pretrained(tmp_path)
    check_weights(tmp_path, written)
    original = load_file(kind.model_dir / "model.safetensors")
    assert written.keys() == original.keys()
    loaded = load_model(tmp_path, kind.facts)
    assert all(torch.equal(v, loaded.state_dict()[n]) for n, v in model.state_dict().items())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW_TO_LEARN else kind
        for kind in KINDS
    ],
    indirect=True,
)
def test_model_that_learned_its_samples_says_them_after_saving(kind, tmp_path):
    model, samples = kind.build(), kind.samples()
    rows, length = packed_rows(samples)
    batches = [
        kind.batch(model, rows, length),
        kind.batch(model, [[sample] for sample in samples]),
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(70):
        batch = batches[step % 2]
        (loss(model, batch) / batch.num_supervised_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, kind.facts).eval()
    answers = loaded.generate([prompt_of(kind, s) for s in samples], max_new_tokens=30)
    learned = [s.input_ids[s.labels != -100].tolist() for s in samples]
    assert answers == [before(tokens, kind.facts.eos_token_id) for tokens in learned]


def test_weights_saved_in_half_precision_are_trained_in_single(make_kind, tmp_path):
    kind = make_kind("smolvlm")
    shutil.copytree(kind.model_dir, tmp_path / "half")
    weights = load_file(kind.model_dir / "model.safetensors")
    half = {name: weight.to(torch.bfloat16) for name, weight in weights.items()}
    save_file(half, tmp_path / "half/model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "half/config.json").read_text())
    (tmp_path / "half/config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    model = load_model(tmp_path / "half", kind.facts)
    assert isinstance(model, HuggingFaceVLM)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.training


def test_weights_that_a_folder_lacks_are_refused(make_kind, tmp_path):
    kind = make_kind("qwen2_vl")
    shutil.copytree(kind.model_dir, tmp_path / "cut")
    weights = load_file(kind.model_dir / "model.safetensors")
    gone = next(name for name in weights if "down_proj" in name)
    del weights[gone]
    save_file(weights, tmp_path / "cut/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(StageConfigError, match=r"1 weights are missing.*down_proj"):
        load_model(tmp_path / "cut", kind.facts)


SETTINGS = {
    "eos_token_id": [1, 2],
    "repetition_penalty": 1.05,
    "do_sample": False,
    "temperature": 0.1,  # has no meaning without sampling: transformers refuses to save it
}


def test_settings_of_generation_go_with_the_model(make_kind, tmp_path):
    kind = make_kind("qwen2_vl")
    shutil.copytree(kind.model_dir, tmp_path / "model")
    (tmp_path / "model/generation_config.json").write_text(json.dumps(SETTINGS))
    load_model(tmp_path / "model", kind.facts).save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/generation_config.json").read_text())
    expected = {**SETTINGS, "eos_token_id": [kind.facts.eos_token_id, 1, 2]}
    assert {name: saved.get(name) for name in SETTINGS} == expected


@pytest.mark.parametrize(
    ("own", "saved"),
    [(None, "end"), ("end", "end"), (5, ["end", 5]), ([5, "end", 7], ["end", 5, 7])],
    ids=str,
)
def test_answers_of_a_loaded_export_end_like_those_of_the_evaluation(
    make_kind, tmp_path, own, saved
):
    kind = make_kind("qwen2_5_vl")
    plain: Any = load_model(kind.model_dir, kind.facts).eval()
    samples = kind.samples()
    asked = [prompt_of(kind, sample) for sample in samples]
    said = plain.generate(asked, max_new_tokens=6)[0]
    end = next(token for token in said[1:] if token != said[0])

    def of(tokens: Any) -> Any:
        return (
            [of(t) for t in tokens]
            if isinstance(tokens, list)
            else {"end": end}.get(tokens, tokens)
        )

    facts = replace(kind.facts, eos_token_id=end)
    shutil.copytree(kind.model_dir, tmp_path / "model")
    settings = {"_from_model_config": True, "pad_token_id": 274, "eos_token_id": of(own)}
    (tmp_path / "model/generation_config.json").write_text(json.dumps(settings))
    model: Any = load_model(tmp_path / "model", facts).eval()
    answer = model.generate(asked[:1], max_new_tokens=6)[0]
    model.save_pretrained(tmp_path / "saved")
    found = json.loads((tmp_path / "saved/generation_config.json").read_text())
    assert (found["eos_token_id"], found["pad_token_id"]) == (of(saved), 274)
    assert "_from_model_config" not in found
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    pictures = plain_arguments(
        arrange_prompts(asked[:1], model.layout, torch.device("cpu"), torch.float32),
        torch.device("cpu"),
    )
    ids = torch.tensor([asked[0].input_ids])
    marks = (ids == model.hf.config.image_token_id).int()
    told = loaded.generate(
        input_ids=ids, mm_token_type_ids=marks, max_new_tokens=6, do_sample=False, **pictures
    )
    assert told[0, ids.shape[1] :].tolist() == [*answer, end]


@pytest.mark.parametrize(
    "own",
    [
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 1},
        {"num_beams": 3},
        {"suppress_tokens": "the first of the answer"},
    ],
    ids=lambda own: next(iter(own)),
)
def test_settings_of_generation_change_no_answer_of_an_evaluation(make_kind, tmp_path, own):
    kind = make_kind("qwen2_5_vl")
    prompts = [prompt_of(kind, sample) for sample in kind.samples()]
    plain = load_model(kind.model_dir, kind.facts).eval()
    plain.hf.generation_config = GenerationConfig()
    answers = plain.generate(prompts, max_new_tokens=12)
    settings = {name: [answers[0][0]] if isinstance(v, str) else v for name, v in own.items()}
    shutil.copytree(kind.model_dir, tmp_path / "model")
    (tmp_path / "model/generation_config.json").write_text(json.dumps(settings))
    model = load_model(tmp_path / "model", kind.facts).eval()
    assert model.generate(prompts, max_new_tokens=12) == answers
    assert model.hf.generation_config.to_dict().items() >= settings.items()  # for the export


def test_learned_positions_of_no_family_decay(kind):
    model: Any = kind.build()
    decayed, plain = (group["params"] for group in parameter_groups(model, 0.1))
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    words = model.hf.get_input_embeddings().weight
    of_words = {id(words)}
    if kind.name == "gemma4":  # its layers have embeddings of words, too
        of_words.add(id(model.hf.get_per_layer_input_embeddings().weight))
    positions = {id(table) for table in tables if table.requires_grad} - of_words
    assert positions <= {id(parameter) for parameter in plain}
    assert of_words <= {id(parameter) for parameter in decayed}
