"""The stage `consolidate`: parts become globally shuffled shards of equal size, and an index.

The data set is a function of the samples, the seed and the config: the number
of slices that the manifest was cut into leaves no trace in it.
"""

from pipeline.consolidate.stage import run

__all__ = ["run"]
