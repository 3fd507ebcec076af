"""Chat templates, tried with a real tokenizer before they are trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.preprocess.tokenizer import load_chat_tokenizer
from slurm_jobs.common.errors import StageConfigError
from tests.pipeline.build import CHAT_TEMPLATE, write_processor


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("{% generation %}", ""), "does not mark what the assistant says"),
        (("{{ '<image>' }}", ""), "gives 0 image tokens"),
        (("{{ '<image>' }}", "{{ '<image><image>' }}"), "gives 2 image tokens"),
        (
            ("{% for item in message['content'] %}{{ item['text'] }}{% endfor %}", "{{ message }}"),
            "as the assistant's words",
        ),
    ],
)
def test_template_that_would_train_on_nonsense_is_refused(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    template = CHAT_TEMPLATE.replace(*change, 1)
    if "generation" in change[0]:
        template = template.replace("{% endgeneration %}", "")
    folder = write_processor(tmp_path / "processor", template=template)
    with pytest.raises(StageConfigError, match=words):
        load_chat_tokenizer(folder, "<image>")


def test_template_that_takes_no_question_is_refused(tmp_path: Path) -> None:
    template = "{{ raise_exception('never') }}{% generation %}{% endgeneration %}"
    folder = write_processor(tmp_path / "processor", template=template)
    with pytest.raises(StageConfigError, match=r"refuses a conversation of user, assistant .never"):
        load_chat_tokenizer(folder, "<image>")


PRINTS_SYSTEM = (
    "{{ message['role'] }}{% if message['role'] == 'system' %}{{ message['content'] }}{% endif %}"
)
NOT_THE_USERS = "{% if message['role'] == 'assistant' %}{% generation %}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            (NOT_THE_USERS, NOT_THE_USERS.replace("== 'assistant'", "!= 'user'")),
            r"marks 'testrule<\|end\|>', 'testanswer<\|end\|>' as .* conversation of system, user",
        ),
        (
            (NOT_THE_USERS, NOT_THE_USERS.replace("'assistant'", "'assistant' or loop.index > 2")),
            r"conversation of user, assistant, user, assistant, expected 'testanswer', 'testreply'",
        ),
        (
            (NOT_THE_USERS, NOT_THE_USERS + "{{ 'assistant: ' }}"),
            r"marks 'assistant: testanswer<\|end\|>' as .*, expected 'testanswer'",
        ),
        (
            ("{{ '<|start|>' + message['role'] + '\n' }}", PRINTS_SYSTEM),
            r"prints lists as they are: .system\[\{'type': 'text', 'text': 'testrule'\}\]",
        ),
    ],
)
def test_template_that_trains_on_other_words_than_the_assistants_is_refused(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    assert change[0] in CHAT_TEMPLATE
    folder = write_processor(tmp_path / "processor", template=CHAT_TEMPLATE.replace(*change, 1))
    with pytest.raises(StageConfigError, match=words):
        load_chat_tokenizer(folder, "<image>")


def test_template_is_reported_in_the_file_where_it_stands(tmp_path: Path) -> None:
    folder = write_processor(tmp_path / "processor", template="no marks")
    assert (folder / "chat_template.jinja").is_file()
    with pytest.raises(StageConfigError, match=r"chat_template\.jinja: its `chat_template` does"):
        load_chat_tokenizer(folder, "<image>")
    (folder / "chat_template.jinja").unlink()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "no marks"}))
    with pytest.raises(StageConfigError, match=r"tokenizer_config\.json: its `chat_template` does"):
        load_chat_tokenizer(folder, "<image>")


USERS_ITEMS = (
    "{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<image>' }}{% else %}{{ item['text'] }}{% endif %}"
    "{% endfor %}"
)
FIRST_AND_LAST = (
    "{% if message['content'][0]['type'] == 'image' %}{{ '<image>' }}{% endif %}"
    "{{ message['content'][-1]['text'] }}"
)
ANSWERS_ITEMS = "{% for item in message['content'] %}{{ item['text'] }}{% endfor %}{{ '<|end|>' }}"
GENERATION_PROMPT = "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
REFUSES_SYSTEM = "{% if message['role'] == 'system' %}{{ raise_exception('none') }}{% endif %}"
DEFAULT_PROMPT = "{{ 'Be helpful: each question has an answer.' }}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            (USERS_ITEMS, USERS_ITEMS.replace("item['text']", "item['content']")),
            "loses 'testquestion', a text of the user",
        ),
        (
            (USERS_ITEMS, DEFAULT_PROMPT + USERS_ITEMS.replace("item['text']", "''")),
            "loses 'testquestion', a text of the user",
        ),
        ((USERS_ITEMS, FIRST_AND_LAST), "gives 0 image tokens for 2 of the items"),
        (
            (USERS_ITEMS, USERS_ITEMS.replace("item['text']", "item['text'] if loop.last")),
            "loses 'testbefore', a text of the user",
        ),
        (
            (ANSWERS_ITEMS, "{{ message['content'][0]['text'] + '<|end|>' }}"),
            "loses 'testmore', a text of the assistant",
        ),
        (
            (USERS_ITEMS, "{% if message['role'] == 'user' %}" + USERS_ITEMS + "{% endif %}"),
            "loses 'testrule', a text of the system",
        ),
    ],
)
def test_template_that_loses_a_text_or_an_image_is_refused(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    assert change[0] in CHAT_TEMPLATE
    folder = write_processor(tmp_path / "processor", template=CHAT_TEMPLATE.replace(*change, 1))
    with pytest.raises(StageConfigError, match=words):
        load_chat_tokenizer(folder, "<image>")


@pytest.mark.parametrize(
    "prompt", ["", "{% if add_generation_prompt %}{{ '<|start|>' }}{% endif %}"]
)
def test_template_whose_prompt_ends_elsewhere_than_answers_start_is_refused(
    tmp_path: Path, prompt: str
) -> None:
    template = CHAT_TEMPLATE.replace(GENERATION_PROMPT, prompt)
    assert template != CHAT_TEMPLATE
    folder = write_processor(tmp_path / "processor", template=template)
    with pytest.raises(StageConfigError, match=r"gives the prompt .* with `add_generation_prompt`"):
        load_chat_tokenizer(folder, "<image>")


IMAGES_FIRST = (
    "{% for item in message['content'] if item['type'] == 'image' %}{{ '<image>' }}{% endfor %}"
    "{% for item in message['content'] if item['type'] == 'text' %}{{ item['text'] }}{% endfor %}"
)


@pytest.mark.parametrize(
    "users",
    [
        REFUSES_SYSTEM + USERS_ITEMS,
        DEFAULT_PROMPT + USERS_ITEMS,
        USERS_ITEMS.replace("item['text']", "item['text'] | trim"),
        IMAGES_FIRST,
    ],
)
def test_template_that_refuses_system_messages_or_adds_words_is_taken(
    tmp_path: Path, users: str
) -> None:
    template = CHAT_TEMPLATE.replace(USERS_ITEMS, users)
    folder = write_processor(tmp_path / "processor", template=template)
    assert load_chat_tokenizer(folder, "<image>").image_token_id >= 0
