"""Stage `consolidate`: parts become globally shuffled shards of equal size, and an index.

The data set is a function of the samples, the seed and the config; it does not depend on the
number of slices of the manifest.
"""
