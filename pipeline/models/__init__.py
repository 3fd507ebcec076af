"""The vision-language models that can be trained: Hugging Face ones, and the small one built here.

Training asks only what `interface` says. What the data set stores becomes a model's input by a
layout of `layouts`, chosen by the model's family.
"""

from pipeline.models.build import build_model, check_images, load_model, make_unloaded
from pipeline.models.facts import DataFacts, load_tokenizer, read_facts
from pipeline.models.interface import Prompt, VisionLanguageModel
from pipeline.models.layouts import StoredImages

__all__ = [
    "DataFacts",
    "Prompt",
    "StoredImages",
    "VisionLanguageModel",
    "build_model",
    "check_images",
    "load_model",
    "load_tokenizer",
    "make_unloaded",
    "read_facts",
]
