"""Records of a run, read for its report."""
