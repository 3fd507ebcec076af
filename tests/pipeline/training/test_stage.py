"""The train stage as a whole, on real gloo processes."""

import json


def test_two_ranks_train_export_and_evaluate(train_run, demo_data):
    run = train_run(evaluate={"manifest": str(demo_data / "render/heldout.jsonl")})
    result = run.run()
    print(result)
    assert result["num_steps"] == 6
    assert result["evaluation"]["num_samples"] == 6
