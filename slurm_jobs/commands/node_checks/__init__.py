"""Commands on nodes: probe, and the checks of doctor."""
