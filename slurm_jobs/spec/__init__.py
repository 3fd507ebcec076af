"""What a spec may say, and where in the file it says something wrong. PURE."""
