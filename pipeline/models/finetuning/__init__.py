"""Parts of a model that learn, adapters, classifier heads, and frozen layers in 4 bits."""
