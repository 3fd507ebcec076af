"""What lies in the folder of a data set: the stages write it, and the login node looks for it."""

INFO_NAME = "dataset.json"
"""What `consolidate` writes last: with it, the data set is finished."""
INDEX_NAME = "index.arrow"
SHARDS_DIR = "shards"
PROCESSOR_DIR = "processor"
