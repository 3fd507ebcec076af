"""Probes of nodes on the login node: reading, comparing, printing."""
