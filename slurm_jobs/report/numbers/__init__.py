"""What the records of a run amount to: PURE. `build` puts all together."""
