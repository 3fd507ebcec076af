"""Models of transformers of every kind: what they see, learn, save and say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.data.batch import Batch
from pipeline.data.disk_format.sample_members import Sample
from pipeline.models.build import build_model, load_model
from pipeline.models.computation.fp32_residual import keep_residual_in_fp32
from pipeline.models.generation import Prompt, before
from pipeline.models.hugging_face import HuggingFaceVLM, features_of
from pipeline.models.layouts.image_layout import StoredImages
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.export import check_weights
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from tests.pipeline.kinds import KINDS, encode_as_hugging_face
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.tiny import ROWS, _messages, write_tiny

CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)
SPARE = 5
"""Places that a packed row has more than its samples fill."""
SLOW_TO_LEARN = tuple(kind for kind in KINDS if kind != "llava")
"""`make test` learns one kind here and another on two ranks; these are among the slow tests."""


def loss(model: VisionLanguageModel, batch: Batch) -> torch.Tensor:
    return loss_of(model, to_device(batch, CPU, model.layout))


def packed_rows(samples: Sequence[Sample]) -> tuple[list[list[Sample]], int]:
    rows = [[samples[0], samples[1]], [samples[2], samples[3]]]
    return rows, SPARE + max(sum(len(s.input_ids) for s in row) for row in rows)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def test_logits_are_those_of_the_model_called_as_its_processor_would(kind):
    model = kind.build().eval()
    head = model.output_head()
    for sample, row in zip(kind.samples(), ROWS, strict=True):
        inputs = to_device(kind.batch(model, [[sample]]), CPU, model.layout)
        with torch.no_grad():
            hidden, _ = model.hidden_states(inputs.input_ids, inputs.vision, inputs.position_ids)
            source = kind.dataset_dir.parents[1] / "source"
            theirs = encode_as_hugging_face(kind.name, _messages(*row), source, return_tensors="pt")
            theirs.pop("token_type_ids", None)
            expected = model.hf(**theirs).logits
        assert inputs.input_ids.tolist() == theirs["input_ids"].tolist()
        torch.testing.assert_close(head(hidden), expected, atol=1e-5, rtol=1e-4)


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


@pytest.mark.parametrize("name", ["llava_siglip", "smolvlm", "qwen2_vl", "qwen3_vl"])
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
    assert bool(frozen) == kind.name.startswith("llava")
    assert all(".vision_tower." in name for name in frozen)


def test_saved_weights_load_equal_under_the_names_of_the_original_files(kind, tmp_path):
    model = kind.build()
    written = model.save_pretrained(tmp_path)
    check_weights(tmp_path, written)
    original = load_file(kind.model_dir / "model.safetensors")
    assert written.keys() == original.keys()
    loaded = load_model(tmp_path, kind.facts)
    assert all(torch.equal(v, loaded.state_dict()[n]) for n, v in model.state_dict().items())


@pytest.mark.parametrize("name", ["llava", "smolvlm", "qwen2_5_vl"])
def test_tied_output_head_is_saved_once_and_is_still_tied(make_kind, name, tmp_path):
    kind = make_kind(name)
    folder = write_tiny(name, tmp_path / "tied", tied=True)
    model = load_model(folder, kind.facts)
    weights = {n: v.clone() for n, v in model.state_dict().items()}  # gathered: no longer shared
    written = model.save_pretrained(tmp_path / "out", weights)
    check_weights(tmp_path / "out", written)
    assert written.keys() == load_file(folder / "model.safetensors").keys()
    loaded = load_model(tmp_path / "out", kind.facts)
    assert loaded.output_head().weight is loaded.hf.get_input_embeddings().weight


def prompt_of(kind: Kind, sample: Sample) -> Prompt:
    start = int(np.argmax(sample.labels != -100))
    flat = [image.reshape(-1, 3) for image in sample.images] or [np.empty((0, 3), dtype=np.uint8)]
    originals = [(height, width) for width, height in sample.meta["original_sizes"]]
    return Prompt(
        input_ids=sample.input_ids[:start].tolist(),
        images=StoredImages(
            pixels=torch.from_numpy(np.concatenate(flat)),
            sizes=torch.tensor([i.shape[:2] for i in sample.images]).reshape(-1, 2),
            original_sizes=torch.tensor(originals).reshape(-1, 2),
        ),
    )


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


@pytest.mark.parametrize("name", KINDS)
def test_batched_answers_equal_those_one_by_one(make_kind, name):
    kind = make_kind(name)
    model = kind.build().eval()
    prompts = [prompt_of(kind, sample) for sample in kind.samples()]
    together = model.generate(prompts, max_new_tokens=6)
    assert together == [model.generate([p], max_new_tokens=6)[0] for p in prompts]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_model_in_half_precision_answers_and_has_its_buffers_as_they_were(make_kind, name, dtype):
    kind = make_kind(name)
    whole = load_model(kind.model_dir, kind.facts)
    model = load_model(kind.model_dir, kind.facts, dtype=dtype).eval()
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    buffers = dict(model.named_buffers())
    for path, buffer in whole.named_buffers():  # positions are computed with them
        assert buffer.dtype == buffers[path].dtype
        assert torch.equal(buffer, buffers[path])
    prompts = [prompt_of(kind, sample) for sample in kind.samples()]
    assert len(model.generate(prompts, max_new_tokens=2)) == len(prompts)


def test_residual_sums_beyond_fp16_stay_finite_under_autocast(kind):
    """As in the Qwen2 family, where layers add up to more than fp16 holds."""
    hidden = {}
    for keeps in (False, True):
        model = kind.build().half()
        if keeps:
            keep_residual_in_fp32(model, CPU.device)
        for layer in model.towers()[1]:
            layer.mlp.register_forward_hook(lambda _module, _inputs, output: output + 60_000)
        batch = kind.batch(model, [[sample] for sample in kind.samples()])
        inputs = to_device(batch, CPU, model.layout)
        with torch.autocast("cpu", torch.float16):
            hidden[keeps], _ = model.hidden_states(
                inputs.input_ids, inputs.vision, inputs.position_ids
            )
    assert torch.isfinite(hidden[True]).all()
    assert not torch.isfinite(hidden[False]).any()


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


@pytest.mark.parametrize("name", ["llava", "smolvlm", "qwen2_5_vl"])
def test_head_of_its_own_that_the_config_ties_is_refused(make_kind, name, tmp_path):
    folder = write_tiny(name, tmp_path / "model", tied=False)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(StageConfigError, match=r"ties lm_head\.weight to .*set tie_word_emb"):
        load_model(folder, make_kind(name).facts)


def test_model_of_an_unknown_type_or_none_is_refused(make_kind, tmp_path):
    facts = make_kind("llava").facts
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(
        StageConfigError, match="model_type 'bert' cannot be trained; supported are"
    ):
        load_model(tmp_path, facts)
    (tmp_path / "config.json").unlink()
    with pytest.raises(StageConfigError, match=r"no readable config\.json"):
        load_model(tmp_path, facts)


def test_model_and_data_set_that_do_not_fit_are_refused_with_what_differs(make_kind):
    tiled, native = make_kind("smolvlm"), make_kind("qwen2_vl")
    with pytest.raises(StageConfigError, match=r"images are native, .* smolvlm needs tiled ones"):
        load_model(tiled.model_dir, native.facts)
    other = make_kind("qwen3_vl")
    config = ModelConfig(type="hugging_face", path=str(native.model_dir))
    with pytest.raises(StageConfigError, match="patch size in pixels: model 14, data set 16"):
        build_model(config, other.facts, seed=0)
