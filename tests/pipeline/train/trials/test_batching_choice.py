"""`batching.kind: auto`: chosen once, and again for another model."""

from __future__ import annotations

import json
import shutil

from tests.pipeline.train.conftest import TINY_MODEL

PACKED = {"kind": "packed", "max_tokens": 160}


def test_auto_chooses_once_and_keeps_to_it(make_train_run):
    run = make_train_run(
        batching={**PACKED, "kind": "auto"}, checkpoint={"every_min": None, "every_steps": 3}
    )
    run.run_here()
    file = run.output_dir / "batching.json"
    choice = json.loads(file.read_text())
    rates = choice["tokens_per_s"]
    assert set(rates) == {"grouped", "packed"}
    assert rates[choice["kind"]] == max(rates.values()) > 0
    same = make_train_run(batching={**PACKED, "kind": choice["kind"]})
    same.run_here()
    assert run.losses() == same.losses()  # the trials have left no trace in the weights
    shutil.rmtree(run.checkpoint(6))
    choice["tokens_per_s"] = "kept"
    file.write_text(json.dumps(choice))
    run.run_here()
    assert json.loads(file.read_text())["tokens_per_s"] == "kept"
    assert run.losses() == same.losses()[3:]


def test_auto_chooses_again_for_another_model_but_not_another_precision(make_train_run):
    run = make_train_run(batching={**PACKED, "kind": "auto"}, num_steps=1)
    run.run_here({"fingerprint": "one"})
    file = run.output_dir / "batching.json"
    chosen = file.read_bytes()
    again = run.run_here(
        {"fingerprint": "two"}, precision="bf16", strategy="ddp", num_microbatches=2
    )
    assert (again["precision"], again["num_steps"]) == ("bf16", 1)
    assert file.read_bytes() == chosen
    language = {**TINY_MODEL["language"], "hidden_size": 64}
    run.run_here({"fingerprint": "three"}, model={**TINY_MODEL, "language": language})
    assert json.loads(file.read_text())["key"]["config"]["model"]["language"]["hidden_size"] == 64
