"""Vision-language models that can be trained: Hugging Face ones, and the built-in small one.

Training uses only the API of `interface`. A layout of `layouts`, chosen by the model's family,
turns the stored data into a model's input.
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
