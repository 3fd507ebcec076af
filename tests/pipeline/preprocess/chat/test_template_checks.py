"""Chat templates, tried with a real tokenizer before they are trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.preprocess.chat.tokenizer import load_chat_tokenizer
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import CHAT_TEMPLATE, write_processor
from tests.pipeline.kinds import without_marks

ANSWERS_ITEMS = "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}"
USERS_ITEMS = (
    "{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<image>' }}{% else %}{{ item['text'] }}{% endif %}"
    "{% endfor %}"
)
FIRST_AND_LAST = (
    "{% if message['content'][0]['type'] == 'image' %}{{ '<image>' }}{% endif %}"
    "{{ message['content'][-1]['text'] }}"
)
IMAGES_FIRST = (
    "{% for item in message['content'] if item['type'] == 'image' %}{{ '<image>' }}{% endfor %}"
    "{% for item in message['content'] if item['type'] == 'text' %}{{ item['text'] }}{% endfor %}"
)
PRINTS_SYSTEM = (
    "{{ message['role'] }}{% if message['role'] == 'system' %}{{ message['content'] }}{% endif %}"
)
NOT_THE_USERS = "{% if message['role'] == 'assistant' %}{% generation %}"
GENERATION_PROMPT = "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
HALF_A_PROMPT = "{% if add_generation_prompt %}{{ '<|start|>' }}{% endif %}"
REFUSES_SYSTEM = "{% if message['role'] == 'system' %}{{ raise_exception('none') }}{% endif %}"
DEFAULT_PROMPT = "{{ 'Be helpful: each question has an answer.' }}"
END = "{{ '<|end|>' }}{% endgeneration %}"
NEVER = "{{ raise_exception('never') }}{% generation %}{% endgeneration %}"


def ends_with(learned: str) -> str:
    """The message about an answer without the end of turn."""
    return (
        rf"with the .* '{learned}' is .* `eos_token` \('<\|end\|>'\), where generation stops; print"
    )


NO_PROMPT = r"gives the prompt .* with `add_generation_prompt`"
REFUSED = {
    "a question": (CHAT_TEMPLATE, NEVER, "refuses a conversation of user, assistant .never"),
    "no image token": ("{{ '<image>' }}", "", "gives 0 image tokens"),
    "two image tokens": ("{{ '<image>' }}", "{{ '<image><image>' }}", "gives 2 image tokens"),
    "first and last": (USERS_ITEMS, FIRST_AND_LAST, "gives 0 image tokens for 2 of the items"),
    "printed answer": (ANSWERS_ITEMS, "{{ message }}", "as the assistant's answers"),
    "printed system message": (
        *("{{ '<|start|>' + message['role'] + '\n' }}", PRINTS_SYSTEM),
        r"prints a list without formatting it: .system\[\{'type': 'text', 'text': 'testr",
    ),
    "system message learned": (
        *(NOT_THE_USERS, NOT_THE_USERS.replace("== 'assistant'", "!= 'user'")),
        r"gives 'testrule<\|end\|>', 'testanswer<\|end\|>' as .* conversation of system, user",
    ),
    "second question learned": (
        *(NOT_THE_USERS, NOT_THE_USERS.replace("'assistant'", "'assistant' or loop.index > 2")),
        r"conversation of user, assistant, user, assistant, expected 'testanswer', 'testreply'",
    ),
    "role learned": (
        *(NOT_THE_USERS, NOT_THE_USERS + "{{ 'assistant: ' }}"),
        r"gives 'assistant: testanswer<\|end\|>' as .*, expected 'testanswer'",
    ),
    "texts under another key": (
        *(USERS_ITEMS, USERS_ITEMS.replace("item['text']", "item['content']")),
        "loses 'testquestion', a text of the user",
    ),
    "default prompt alone": (
        *(USERS_ITEMS, DEFAULT_PROMPT + USERS_ITEMS.replace("item['text']", "''")),
        "loses 'testquestion', a text of the user",
    ),
    "last text alone": (
        *(USERS_ITEMS, USERS_ITEMS.replace("item['text']", "item['text'] if loop.last")),
        "loses 'testbefore', a text of the user",
    ),
    "system message lost": (
        *(USERS_ITEMS, "{% if message['role'] == 'user' %}" + USERS_ITEMS + "{% endif %}"),
        "loses 'testrule', a text of the system",
    ),
    "no prompt": (GENERATION_PROMPT, "", NO_PROMPT),
    "half a prompt": (GENERATION_PROMPT, HALF_A_PROMPT, NO_PROMPT),
    "end not learned": (END, "{% endgeneration %}{{ '<|end|>' }}", ends_with("testanswer")),
    "no end": (END, "{% endgeneration %}", ends_with("testanswer")),
    "other end": (
        *(END, "{{ '<|start|>' }}{% endgeneration %}", ends_with(r"testanswer<\|start\|>")),
    ),
}


@pytest.mark.parametrize(("printed", "instead", "words"), REFUSED.values(), ids=REFUSED)
def test_template_that_would_train_on_nonsense_is_refused(
    tmp_path: Path, printed: str, instead: str, words: str
) -> None:
    assert printed in CHAT_TEMPLATE
    template = CHAT_TEMPLATE.replace(printed, instead, 1)
    folder = write_processor(tmp_path / "processor", template=template)
    with pytest.raises(StageConfigError, match=words):
        load_chat_tokenizer(folder, "<image>")


TAKEN = {
    "no system message": (USERS_ITEMS, REFUSES_SYSTEM + USERS_ITEMS),
    "default prompt": (USERS_ITEMS, DEFAULT_PROMPT + USERS_ITEMS),
    "trimmed texts": (USERS_ITEMS, USERS_ITEMS.replace("item['text']", "item['text'] | trim")),
    "images first": (USERS_ITEMS, IMAGES_FIRST),
    "line break learned": (END, END.replace("{% end", "{{ '\n' }}{% end")),
    "token learned after the end": (END, END.replace("{% end", "{{ '<|pad|>\n' }}{% end")),
}


@pytest.mark.parametrize(("printed", "instead"), TAKEN.values(), ids=TAKEN)
def test_template_that_refuses_system_messages_or_adds_words_is_taken(
    tmp_path: Path, printed: str, instead: str
) -> None:
    assert printed in CHAT_TEMPLATE
    template = CHAT_TEMPLATE.replace(printed, instead)
    folder = write_processor(tmp_path / "processor", template=template)
    assert load_chat_tokenizer(folder, "<image>").image_token_id >= 0


def test_a_template_is_reported_in_its_file(tmp_path: Path) -> None:
    folder = write_processor(tmp_path / "processor", template="no messages")
    assert (folder / "chat_template.jinja").is_file()
    with pytest.raises(StageConfigError, match=r"chat_template\.jinja: the `chat_template` gives"):
        load_chat_tokenizer(folder, "<image>")
    (folder / "chat_template.jinja").unlink()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "no marks"}))
    with pytest.raises(
        StageConfigError, match=r"tokenizer_config\.json: the `chat_template` gives"
    ):
        load_chat_tokenizer(folder, "<image>")


def test_a_template_whose_turns_end_otherwise_is_not_asked_for_marks(
    tmp_path: Path,
) -> None:
    template = without_marks(CHAT_TEMPLATE).replace("<|end|>", "<|pad|>")
    words = r"set `eos_token` to the token that ends turns in tokenizer_config\.json$"
    with pytest.raises(StageConfigError, match=words) as caught:
        load_chat_tokenizer(write_processor(tmp_path / "processor", template=template), "<image>")
    assert "generation %}" not in str(caught.value)


def test_end_token_that_is_set_to_the_templates_end_of_turn_is_taken(tmp_path: Path) -> None:
    """As where a base model's tokenizer ends texts, and the template ends turns with its own."""
    template = CHAT_TEMPLATE.replace("<|end|>", "<|pad|>")
    folder = write_processor(tmp_path / "processor", template=template)
    files = [folder / "tokenizer_config.json"]
    for end_token in ("<|end|>", None):
        set_end_token(files, end_token)
        with pytest.raises(StageConfigError, match=r"set `eos_token` to it in tokenizer_con[^ ]*$"):
            load_chat_tokenizer(folder, "<image>")
    set_end_token(files, "<|pad|>")
    assert load_chat_tokenizer(folder, "<image>").tokenizer.eos_token == "<|pad|>"


def test_older_file_that_hides_the_end_token_is_named_as_well(tmp_path: Path) -> None:
    template = CHAT_TEMPLATE.replace("<|end|>", "<|pad|>")
    folder = write_processor(tmp_path / "processor", template=template)
    files = [folder / "tokenizer_config.json", folder / "special_tokens_map.json"]
    files[1].write_text(json.dumps({"eos_token": "<|end|>"}))
    set_end_token(files[:1], "<|pad|>")
    with pytest.raises(
        StageConfigError, match=r"to it in tokenizer_config\.json and special_token"
    ):
        load_chat_tokenizer(folder, "<image>")
    set_end_token(files, "<|pad|>")
    assert load_chat_tokenizer(folder, "<image>").tokenizer.eos_token == "<|pad|>"


def set_end_token(files: list[Path], token: str | None) -> None:
    for path in files:
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": token}))
