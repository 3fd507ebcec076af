"""Probes of nodes as the login node sees them: read back, compared with each other, told."""
