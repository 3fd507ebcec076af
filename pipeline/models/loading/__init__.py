"""Weights and configs of models in folders or on the hub: found, checked and loaded."""
