"""Manifests of all formats, read by ranges of rows.

`opening` detects the format. `text_manifest` reads text files by an index of their blocks,
`table_manifest` reads tables by their row groups or record batches. Rows are parsed in
`slurm_jobs.common.manifests`.
"""
