"""Rules of a processor folder for images: stored pixels, and tokens in the text.

`read_processor` reads the folder's JSON files. Each kind of image processor has a module that
computes the result (an `ImagePlan`) from the size of an image alone. Nothing here needs torch or
transformers, so `init` and `check` count tokens as the job does.
"""
