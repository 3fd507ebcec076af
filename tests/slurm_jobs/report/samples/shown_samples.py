"""A sample with hostile words, an image and a supervised answer."""

from __future__ import annotations

from typing import Any

from slurm_jobs.report.samples.sample_values import ShownSample, read_sample

IMAGE = 9
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e"


def sample(**changes: Any) -> ShownSample:
    """`<user>`, an image of three tokens, hostile words, a supervised answer of two lines."""
    values = {
        "key": "000000007",
        "shard": "shards/shard-000000.tar",
        "problem": None,
        "row": 7,
        "source": f"x{HOSTILE}",
        "is_truncated": False,
        "images": [{"original": [60, 72], "stored": [[64, 64]]}],
        "input_ids": [1, IMAGE, IMAGE, IMAGE, 2, 3, 4, 5],
        "labels": [-100, -100, -100, -100, -100, 3, 4, 5],
        "pieces": ["<user>", "<image>", "<image>", "<image>", HOSTILE, "Two\nlines", "", "é<end>"],
        **changes,
    }
    return read_sample(values, IMAGE)
