"""Rules on the steps, the ranks and the devices of a training. PURE."""
