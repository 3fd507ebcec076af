"""Verbs on a spec: init, check, plan, submit, schema."""
