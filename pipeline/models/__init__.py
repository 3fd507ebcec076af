"""Vision-language models that can be trained: Hugging Face ones, and the built-in small one.

Training uses only the interface in `vision_language`. A layout of `layouts`, chosen by the model's
family, turns the stored data into a model's input.
"""
