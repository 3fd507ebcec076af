"""Real processors of every kind, small ones: their folders, and what Hugging Face makes of rows.

Their video processors need torchvision and are left out, as is SmolVLM's num2words; neither has to
do with images.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

_ROLE = "{{ message['role'] }}"
QWEN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>" + _ROLE + "\n"
    "{% if message['role'] == 'assistant' %}{% generation %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}<|im_end|>"
    "{% endgeneration %}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ item['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOLVLM_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% if message['role'] == 'assistant' %}{% generation %} "
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}<end_of_utterance>"
    "{% endgeneration %}{% else %}"
    "{% if message['content'][0]['type'] != 'image' %} {% endif %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}<image>"
    "{% else %}{{ item['text'] }}{% endif %}{% endfor %}<end_of_utterance>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}ASSISTANT:{% generation %} "
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}</s>{% endgeneration %}"
    "{% else %}{{ message['role'] | upper }}: "
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}<image>\n"
    "{% else %}{{ item['text'] }}{% endif %}{% endfor %} {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
"""It prints no `<s>`: LLaVA's tokenizer puts that before every text."""
GEMMA3_TEMPLATE = (
    "{{ bos_token }}"
    "{%- if messages[0]['role'] == 'system' -%}"
    "{%- set before = messages[0]['content'][0]['text'] + '\n\n' -%}"
    "{%- set messages = messages[1:] -%}{%- else -%}{%- set before = '' -%}{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('Roles must alternate') }}{%- endif -%}"
    "{%- if message['role'] == 'assistant' -%}{%- set role = 'model' -%}"
    "{%- else -%}{%- set role = message['role'] -%}{%- endif -%}"
    "{{ '<start_of_turn>' + role + '\n' + (before if loop.first else '') }}"
    "{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}"
    "{{ '<start_of_image>' }}{%- else -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}"
    "{{ '<end_of_turn>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)
"""In what it renders, that of the published Gemma 3."""
INTERNVL_TEMPLATE = (
    "{% for message in messages %}<|im_start|>" + _ROLE + "\n"
    "{% if message['role'] == 'assistant' %}{% generation %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}<|im_end|>"
    "{% endgeneration %}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}<IMG_CONTEXT>\n"
    "{% else %}{{ item['text'] }}{% endif %}{% endfor %}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA4_TEMPLATE = (
    "{{ bos_token }}{%- for message in messages -%}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}"
    "{{ '<|turn>' + role + '\n' }}"
    "{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}"
    "{{ '<|image|>' }}{%- else -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}"
    "{{ '<turn|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|turn>model\n' }}{%- endif -%}"
)
"""In what it renders without tools and thoughts, that of the published Gemma 4."""
GLM_TEMPLATE = (
    "[gMASK]<sop>{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>\n{% generation %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}<|user|>{% endgeneration %}"
    "{% else %}{% if message['role'] == 'system' %}<|system|>"
    "{% elif loop.first or loop.previtem['role'] != 'assistant' %}<|user|>{% endif %}{{ '\n' }}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ item['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""In what it renders, that of the published GLM-4.1V, whose answers end where a question begins."""
PADDLEOCR_TEMPLATE = (
    "<|begin_of_sentence|>{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ 'Assistant: ' }}{% generation %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}</s>{% endgeneration %}"
    "{% else %}{% if message['role'] == 'user' %}{{ 'User: ' }}{% endif %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{% else %}{{ item['text'] }}{% endif %}"
    "{% endfor %}{{ '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)
"""Like that of the published PaddleOCR-VL, except that images stay where they are in a message."""
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}{{ eos_token }}"
    "{% elif message['role'] == 'system' %}"
    "[SYSTEM_PROMPT]{{ message['content'][0]['text'] }}[/SYSTEM_PROMPT]{% else %}[INST]"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}[IMG]"
    "{% else %}{{ item['text'] }}{% endif %}{% endfor %}[/INST]{% endif %}{% endfor %}"
)
"""In what it renders, that of the published Mistral Small 3.1."""
MARKS = ("{% generation %}", "{% endgeneration %}")


def without_marks(template: str) -> str:
    """As most templates are published."""
    for mark in MARKS:
        assert mark in template
        template = template.replace(mark, "")
    return template


KINDS = (
    *("llava", "llava_siglip", "llava_next", "llava_onevision", "idefics3", "smolvlm"),
    "internvl",
    *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_vl_moe", "qwen3_5_moe"),
    *("glm4v", "glm46v", "glm_ocr", "paddleocr_vl", "lighton_ocr", "mistral3"),
    *("gemma3", "gemma4"),
)
SEE_AHEAD = ("gemma3", "gemma4")
"""Kinds in which tokens of an image also see later ones of it: their rows always have a mask."""
CAUSAL = tuple(kind for kind in KINDS if kind not in SEE_AHEAD)
EXPERT_KINDS = ("qwen3_vl_moe", "qwen3_5_moe")
"""Mixtures of experts, whose weights are in no linear layers."""
TILE = 28
"""Side of a tile, or of LLaVA's pictures, in pixels."""
NUM_TILE_TOKENS = 4


@functools.cache
def make_processor(kind: str) -> Any:
    """A processor of transformers with a small tokenizer and small pictures."""
    import transformers as hf

    clip = {"size": {"shortest_edge": TILE}, "crop_size": {"height": TILE, "width": TILE}}
    llava = {
        "patch_size": 14,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    tiles = {"size": {"longest_edge": 4 * TILE}, "max_image_size": {"longest_edge": TILE}}
    area = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 60}
    area_of_3 = {"shortest_edge": 64 * 64, "longest_edge": 32 * 32 * 60}
    grids = [[a * TILE, b * TILE] for a, b in ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))]
    anyres = hf.LlavaNextImageProcessorPil(**clip, image_grid_pinpoints=grids)
    square = {"size": {"height": TILE, "width": TILE}}
    onevision = hf.LlavaOnevisionImageProcessorPil(
        size={"height": TILE, "width": TILE},
        image_grid_pinpoints=[[a * TILE, b * TILE] for a in (1, 2, 3) for b in (1, 2, 3)],
    )
    glm = {"size": {"shortest_edge": 2 * 56 * 56, "longest_edge": 2 * 28 * 28 * 60}}
    gotocr = hf.GotOcr2ImageProcessorPil(size={"height": TILE, "width": TILE}, max_patches=6)
    qwen2 = hf.Qwen2VLImageProcessorPil(size=area)
    qwen3 = hf.Qwen2VLImageProcessorPil(
        size=area_of_3, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    seq = {"image_seq_len": NUM_TILE_TOKENS}
    cls, images, options = {
        "llava": (hf.LlavaProcessor, hf.CLIPImageProcessorPil(**clip), llava),
        "llava_siglip": (
            hf.LlavaProcessor,
            hf.SiglipImageProcessorPil(**square),
            {"patch_size": 14, "vision_feature_select_strategy": "full"},
        ),
        "llava_next": (hf.LlavaNextProcessor, anyres, llava),
        "llava_onevision": (
            hf.LlavaOnevisionProcessor,
            onevision,
            {
                "num_image_tokens": NUM_TILE_TOKENS,
                "vision_feature_select_strategy": "full",
                "vision_aspect_ratio": "anyres_max_2",
            },
        ),
        "idefics3": (hf.Idefics3Processor, hf.Idefics3ImageProcessorPil(**tiles), seq),
        "smolvlm": (hf.SmolVLMProcessor, hf.SmolVLMImageProcessorPil(**tiles), seq),
        "internvl": (hf.InternVLProcessor, gotocr, {"image_seq_length": NUM_TILE_TOKENS}),
        "qwen2_vl": (hf.Qwen2VLProcessor, qwen2, {}),
        "qwen2_5_vl": (hf.Qwen2_5_VLProcessor, qwen2, {}),
        "qwen3_vl": (hf.Qwen3VLProcessor, qwen3, {}),
        "glm4v": (hf.Glm4vProcessor, hf.Glm4vImageProcessorPil(**glm), {}),
        "glm46v": (hf.Glm46VProcessor, hf.Glm46VImageProcessorPil(**glm), {}),
        "glm_ocr": (hf.Glm46VProcessor, hf.Glm46VImageProcessorPil(**glm), {}),
        "mistral3": (
            _pixtral_processor(),
            hf.PixtralImageProcessorPil(size={"longest_edge": 28 * 7}),
            {"patch_size": 14, "spatial_merge_size": 2},
        ),
        "lighton_ocr": (
            hf.LightOnOcrProcessor,
            hf.PixtralImageProcessorPil(
                size={"longest_edge": 28 * 7}, patch_size={"height": 28, "width": 28}
            ),
            {},
        ),
        "paddleocr_vl": (
            hf.PaddleOCRVLProcessor,
            hf.PaddleOCRVLImageProcessorPil(size=area),
            {},
        ),
        "gemma3": (
            hf.Gemma3Processor,
            hf.Gemma3ImageProcessorPil(**square),
            {"image_seq_length": NUM_TILE_TOKENS},
        ),
        "qwen3_5": (hf.Qwen3VLProcessor, qwen3, {}),
        "gemma4": (
            hf.Gemma4Processor,
            hf.Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70),
            {},
        ),
        "qwen3_vl_moe": (hf.Qwen3VLProcessor, qwen3, {}),
        "qwen3_5_moe": (hf.Qwen3VLProcessor, qwen3, {}),
    }[kind]
    tokenizer = _make_tokenizer(kind)
    return _without_video(cls)(
        image_processor=images,
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
        **options,
    )


def _pixtral_processor() -> type:
    """The class of transformers, or its tokens where torchvision is missing, which it needs."""
    import transformers as hf
    from transformers.utils import is_torchvision_available

    if is_torchvision_available():
        return hf.PixtralProcessor

    class PixtralProcessor(hf.ProcessorMixin):
        def __init__(
            self,
            image_processor: Any = None,
            tokenizer: Any = None,
            patch_size: int = 16,
            spatial_merge_size: int = 1,
            chat_template: str | None = None,
        ) -> None:
            super().__init__(image_processor, tokenizer, chat_template=chat_template)
            self.patch_size, self.spatial_merge_size = patch_size, spatial_merge_size
            self.side = patch_size * spatial_merge_size
            self.image_token = "[IMG]"
            self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)

        def _process_images(self, images: Any, **options: Any) -> Any:
            return super()._process_images(images, **options, patch_size=self.side)

        def replace_image_token(self, image_inputs: Any, image_idx: int, **_options: Any) -> str:
            height, width = image_inputs["image_sizes"][image_idx]
            rows = ["[IMG]" * (width // self.side)] * (height // self.side)
            return "[IMG_BREAK]".join(rows) + "[IMG_END]"

    return PixtralProcessor


def _without_video(cls: type) -> type:
    import transformers.models.smolvlm.processing_smolvlm as smolvlm

    smolvlm.num2words = str  # for its frames of videos
    if "video_processor" not in cls.get_attributes():
        return cls

    whole = cls.get_attributes()
    others = {"video_processor", "feature_extractor"} & set(whole)
    known = ["image_processor", "tokenizer"]

    def get_attributes(_cls: type) -> list[str]:
        return known

    def check(self: Any, name: str, argument: object) -> object:
        if name in others:
            return None
        return cls.check_argument_for_proper_class(self, name, argument)

    @functools.wraps(cls.__init__)  # what is saved follows from its signature
    def init(self: Any, **options: object) -> None:
        known[:] = whole if "feature_extractor" in whole else known
        cls.__init__(self, **dict.fromkeys(others), **options)
        known[:] = ["image_processor", "tokenizer"]

    members = {
        "get_attributes": classmethod(get_attributes),
        "check_argument_for_proper_class": check,
        "__init__": init,
    }
    return type(cls.__name__, (cls,), members)


def _make_tokenizer(kind: str) -> Any:
    """A byte-level BPE in which two line breaks are one token, with the kind's own tokens."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(["What is this?\n\n", "A red cup.\n\n", "Sure?\n\n"] * 9, trainer)
    assert len(bpe.encode("\n\n").ids) == 1
    roles: dict[str, str] = {}
    if kind.startswith("qwen"):
        names = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
        vision = ("vision_start", "vision_end", "image_pad", "video_pad")
        more = ["<|im_start|>", *(f"<|{name}|>" for name in vision)]
        template = without_marks(QWEN_TEMPLATE)
    elif kind.startswith("glm"):
        names = {"bos_token": None, "eos_token": "<|user|>", "pad_token": "<|endoftext|>"}
        roles_of = ("system", "assistant", "image", "video", "begin_of_image", "end_of_image")
        more = ["[gMASK]", "<sop>", "<|begin_of_video|>", "<|end_of_video|>"]
        more += [f"<|{name}|>" for name in roles_of]
        template = GLM_TEMPLATE
    elif kind == "mistral3":
        names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
        more = ["[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
        more += ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
        template = MISTRAL_TEMPLATE
    elif kind == "lighton_ocr":
        names = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
        roles = {
            "image_token": "<|image_pad|>",
            "image_break_token": "<|vision_pad|>",
            "image_end_token": "<|vision_end|>",
        }
        more = ["<|im_start|>"]
        template = without_marks(QWEN_TEMPLATE).replace("<|vision_start|>", "")
        template = template.replace("<|vision_end|>", "")
    elif kind == "paddleocr_vl":
        names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
        roles = {"image_token": "<|IMAGE_PLACEHOLDER|>"}
        more = ["<|begin_of_sentence|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|video|>"]
        template = without_marks(PADDLEOCR_TEMPLATE)
    elif kind == "gemma3":
        images = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
        names = {
            "bos_token": "<bos>",
            "eos_token": "<end_of_turn>",
            "pad_token": "<pad>",
            "extra_special_tokens": images | {"image_token": "<image_soft_token>"},
        }
        more, template = ["<start_of_turn>"], GEMMA3_TEMPLATE
        # Gemma's tokenizers have a token for each number of line breaks.
        bpe.add_tokens([AddedToken("\n" * number, normalized=False) for number in range(1, 6)])
    elif kind == "internvl":
        names = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
        more, template = ["<|im_start|>"], without_marks(INTERNVL_TEMPLATE)
        roles = {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        }
    elif kind == "gemma4":
        images = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>"}
        sounds = {"boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"}
        names = {
            "bos_token": "<bos>",
            "eos_token": "<turn|>",
            "pad_token": "<pad>",
            "extra_special_tokens": images | sounds,
        }
        more, template = ["<|turn>", "<|video|>"], GEMMA4_TEMPLATE
    elif kind.startswith("llava"):
        names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
        more, template = ["<image>"], LLAVA_TEMPLATE
    else:
        names = {"bos_token": "<|im_start|>", "eos_token": "<end_of_utterance>", "pad_token": "<p>"}
        places = [f"<row_{row}_col_{col}>" for row in range(1, 7) for col in range(1, 7)]
        more = ["<fake_token_around_image>", "<image>", "<global-img>"]
        more += places if kind == "smolvlm" else []  # else they are tokenised as words are
        template = SMOLVLM_TEMPLATE
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, additional_special_tokens=more, **names, **roles
    )
    if kind.startswith("llava"):
        begin = ("<s>", tokenizer.bos_token_id)
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[begin]
        )
    tokenizer.chat_template = template
    return tokenizer


def write_kind(kind: str, folder: Path) -> Path:
    """The folder of a processor, as transformers saves it."""
    make_processor(kind).save_pretrained(folder)
    return folder


def encode_as_hugging_face(
    kind: str, messages: list[dict[str, Any]], image_root: Path, **options: object
) -> dict[str, Any]:
    """What the processor gives a model for these messages, each value without the batch's axis."""
    from transformers import ProcessorMixin

    messages = [
        {**message, "content": [_with_picture(item, image_root) for item in message["content"]]}
        for message in messages
    ]
    # That of SmolVLM's own class asks its video processor first, then calls this.
    return ProcessorMixin.apply_chat_template(
        make_processor(kind), messages, tokenize=True, return_dict=True, **options
    )


def _with_picture(item: dict[str, str], image_root: Path) -> dict[str, Any]:
    if item["type"] != "image":
        return item
    with Image.open(image_root / item["path"]) as image:
        return {"type": "image", "image": ImageOps.exif_transpose(image).convert("RGB")}


def normalise_as_hugging_face(kind: str, image: np.ndarray) -> np.ndarray:
    """Uint8 [height, width, 3] to float32 [3, height, width], by the processor's own functions."""
    images = make_processor(kind).image_processor
    channels_first = np.moveaxis(image, -1, 0)
    rescaled = images.rescale(channels_first, images.rescale_factor)
    return images.normalize(rescaled, images.image_mean, images.image_std)


def convert_image_to_patches(image: np.ndarray, side: int) -> np.ndarray:
    from transformers.models.gemma4 import image_processing_pil_gemma4

    return image_processing_pil_gemma4.convert_image_to_patches(image, side)


def pixel_values_of(kind: str, images: tuple[np.ndarray, ...]) -> np.ndarray:
    """`pixel_values` of one row, made of what we store of its images."""
    floats = [normalise_as_hugging_face(kind, image) for image in images]
    if kind == "gemma4":
        side = make_processor(kind).image_processor.patch_size
        return np.concatenate([convert_image_to_patches(image, side) for image in floats])
    if kind in {"lighton_ocr", "mistral3"}:  # filled up to the largest
        most = np.max([image.shape for image in floats], axis=0)
        ends = [[(0, int(end)) for end in most - image.shape] for image in floats]
        return np.stack([np.pad(*image) for image in zip(floats, ends, strict=True)])
    if not kind.startswith(("qwen", "glm", "paddle")):
        return np.stack(floats)
    processor = make_processor(kind).image_processor
    sizes = (processor.patch_size, processor.merge_size, processor.temporal_patch_size)
    return np.concatenate([processor.patchify(image, *sizes)[0] for image in floats])


def pixel_values_of_hugging_face(kind: str, encoded: dict[str, Any]) -> np.ndarray:
    """Those of one row, without the batch's axis and without tiles that only fill up."""
    values = np.asarray(encoded["pixel_values"])
    if kind == "gemma4":  # filled up to the most patches
        return values[np.asarray(encoded["image_position_ids"])[..., 0] >= 0]
    if kind in (
        "llava_next",
        "llava_onevision",
    ):  # one image after the other, filled up to the most tiles
        return np.concatenate([tiles[: _num_real(tiles)] for tiles in values])
    return values[0] if kind in ("idefics3", "smolvlm") else values


def _num_real(tiles: np.ndarray) -> int:
    """Tiles before those that are zero throughout, which no normalised picture here is."""
    return int(np.flatnonzero(np.abs(tiles).reshape(len(tiles), -1).max(axis=1))[-1]) + 1
