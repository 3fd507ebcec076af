"""Records of `doctor` and `probe`, as nodes write them."""
