"""Verbs on data sets: packing, samples, verify."""
