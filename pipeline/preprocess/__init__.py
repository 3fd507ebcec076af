"""Stage `preprocess`: rows of a manifest become tokens, labels and resized images.

Deterministic: a slice that runs twice writes the same bytes. The loader augments, and
`consolidate` shuffles.
"""
