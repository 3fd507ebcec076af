"""Numbers on a training: steps, ranks, nodes, device. PURE."""
