"""What `pipeline.data.index` says of a data set."""

from __future__ import annotations

_TOKENS = {"mean": 36.5, "min": 9, "p5": 12, "p25": 20, "p50": 33, "p75": 50, "p95": 80}
STATISTICS = {
    "num_samples": 9984,
    "num_tokens": {**_TOKENS, "p99": 100, "max": 128},
    "num_supervised_tokens": {**_TOKENS, "p99": 30, "max": 41},
    "supervised_share": 0.31,
    "num_images": {**dict.fromkeys(_TOKENS, 1), "mean": 1.25, "p99": 2, "max": 4},
    "num_pixels": {**dict.fromkeys(_TOKENS, 147456), "p99": 147456, "max": 147456},
    "image_size": [384, 384],
    "num_tokens_bins": [[9, 63, 9000], [64, 128, 984]],
    "num_images_bins": [[1, 1, 9900], [2, 4, 84]],
}
