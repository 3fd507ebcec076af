"""Images of rows: from bytes of a source to upright, resized RGB, and to bytes of a shard."""
