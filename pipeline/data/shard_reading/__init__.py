"""Shards opened for reading, on the local disk or on the shared file system."""
