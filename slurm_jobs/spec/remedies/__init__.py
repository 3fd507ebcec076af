"""Remedies: keys of other tools, options of sbatch, forms of lists and mappings."""
