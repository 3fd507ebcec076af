"""Chat messages of a row as tokens and labels: tokenizers and chat templates."""
