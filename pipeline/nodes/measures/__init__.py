"""Measurements that `probe` runs on a node."""
