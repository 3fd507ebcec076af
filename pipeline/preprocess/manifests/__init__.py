"""Manifests of all formats, read by ranges of rows.

`opening` finds out the format. `text_manifest` reads files of text by an index of
their blocks, `table_manifest` tables by their row groups or record batches; a
module a format says where rows begin and end. `values` and `turns` say what the
values of a row mean, whatever the format.
"""
