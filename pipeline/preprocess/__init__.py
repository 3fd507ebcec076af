"""The stage `preprocess`: rows of a manifest become tokens, labels and resized images.

Deterministic: a slice that runs twice writes the same bytes. Augmentation is
left to the loader, shuffling to `consolidate`.
"""

from pipeline.preprocess.stage import run

__all__ = ["run"]
