"""WebDataset tars as manifests: members of one key are a row.

`tar_folder` finds the tars of a folder, `tar_groups` the members of each key, and `group_values`
makes of them the mapping that the reader of rows takes. `energon` reads what Megatron-Energon keeps
about a folder. Source of the rules: webdataset 1.0, `tariterators.py` and `writer.py`.
"""
