"""Sharding strategies: their interface, each of them, and what they share."""
