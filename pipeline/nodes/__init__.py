"""The stages `probe` and `doctor`: what the nodes of a job can do."""
