"""Mean numbers of rows that a share of held-out pictures leaves and holds out. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slurm_jobs.formats.manifests.messages import ManifestRow


def expected_trained(rows: Sequence[ManifestRow], share: float) -> float:
    """Return the mean number of rows of which no picture is held out."""
    return math.fsum((1 - share) ** num_pictures(row) for row in rows)


def expected_held_out(rows: Sequence[ManifestRow], share: float) -> float:
    """Return the mean number of rows of which all pictures are held out."""
    return math.fsum(share ** num_pictures(row) for row in rows)


def num_pictures(row: ManifestRow) -> int:
    """Return the number of things that are held out or not: pictures, or the text alone."""
    return max(1, len(set(row.image_paths)))
