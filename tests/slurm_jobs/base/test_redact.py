"""Secrets are hidden wherever they are likely; what is none stays readable."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from slurm_jobs.base import redact
from slurm_jobs.base.redact import (
    MAX_KNOWN,
    MAX_NAME_CHARS,
    NOT_SHOWN,
    hidden_setting,
    hidden_text,
    hidden_values,
    known_secrets,
    looks_secret,
    without_url_users,
)
from tests.regex_work import count_steps


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "apiKey", "openai_key", "DBPASS"),
        *("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "db_passwd", "MYSQL_PWD", "GITHUB_PAT", "pgpass"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE_KEY", "HTTP_AUTH", "Authorization"),
        *("STORAGE_ACCOUNT_KEY", "API_TOKENS", "OPENAI_KEY", "WANDB_KEY", "SOME_VENDORS_KEY"),
        *("stages.a.environment.OPENAI_KEY", "SMTPPWD"),
    ],
)
def test_the_name_of_a_secret_is_known(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "tokeniser", "PATH", "PYTHONPATH", "image_key", "AUTHOR"),
        *("passes", "num_keys", "key_padding", "keyboard", "MONKEY", "sort_key", "PUBLIC_KEY"),
        *("max_tokens", "max_new_tokens", "num_tokens", "pad_token", "token_ids", "tokens_per_s"),
        *("bypass", "compass", "OLDPWD", "KEY"),
    ],
)
def test_a_name_that_only_resembles_a_secrets_is_left_alone(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export HF_TOKEN=hf_abc", f"export HF_TOKEN={NOT_SHOWN}"),
        ("HF_TOKEN='a b c' python x.py", f"HF_TOKEN={NOT_SHOWN} python x.py"),
        ('{"API_KEY": "abc", "lr": 1}', f'{{"API_KEY": {NOT_SHOWN}, "lr": 1}}'),
        ("curl -H 'Authorization: Bearer abc' u", f"curl -H 'Authorization: Bearer {NOT_SHOWN}' u"),
        ("tool --password=abc --x=1", f"tool --password={NOT_SHOWN} --x=1"),
        ("https://h/x?access_token=abc&y=1", f"https://h/x?access_token={NOT_SHOWN}&y=1"),
        ('export HF_TOKEN="$(cat ~/.token)"', 'export HF_TOKEN="$(cat ~/.token)"'),
        ("export HF_TOKEN=$MINE", "export HF_TOKEN=$MINE"),
        ("export OMP_NUM_THREADS=4", "export OMP_NUM_THREADS=4"),
        ("huggingface-cli login --token hf_abc", f"huggingface-cli login --token {NOT_SHOWN}"),
        ("mysql --password abc -h db", f"mysql --password {NOT_SHOWN} -h db"),
        ("tool --api-key \\\n  abc x", f"tool --api-key \\\n  {NOT_SHOWN} x"),
        ("tool -password 'a b' x", f"tool -password {NOT_SHOWN} x"),
        ("tool --token $MINE --x 1", "tool --token $MINE --x 1"),
        ("tool --token --x 1", "tool --token --x 1"),
        ("tool --config HF_TOKEN=abc x", f"tool --config HF_TOKEN={NOT_SHOWN} x"),
        ("curl -u me:pass https://x", f"curl -u {NOT_SHOWN} https://x"),
        ("curl --user 'me:p q' https://x", f"curl --user {NOT_SHOWN} https://x"),
        ("curl -u me:$PASS https://x", "curl -u me:$PASS https://x"),
        ("python -u train.py", "python -u train.py"),
        ("tool -u https://x y", "tool -u https://x y"),
        ("bash -c 'DB_PASSWORD=abc x' y", f"bash -c 'DB_PASSWORD={NOT_SHOWN} x' y"),
        ("bash -c 'DB_PASSWORD=it'\\''s' y", f"bash -c 'DB_PASSWORD={NOT_SHOWN}' y"),
        ('bash -c "DB_PASSWORD=\\"a b\\" x" y', f'bash -c "DB_PASSWORD={NOT_SHOWN} x" y'),
        ('curl -d \'{"password": "a b"}\' u', f"curl -d '{{\"password\": {NOT_SHOWN}}}' u"),
        ('{"api_key":"abc","lr":1}', f'{{"api_key":{NOT_SHOWN},"lr":1}}'),
        ('{"auth": {"user": "abc"}}\nx', f'{{"auth": {NOT_SHOWN}\nx'),
        ("password: 'it''s x' y", f"password: {NOT_SHOWN} y"),
        ('login(token="abc")', f"login(token={NOT_SHOWN})"),
        ("[ $HF_TOKEN == abc ]", f"[ $HF_TOKEN == {NOT_SHOWN} ]"),
        ('export HF_TOKEN="a b\nnext', f"export HF_TOKEN={NOT_SHOWN}\nnext"),
        ("don't: HF_TOKEN='a b' x", f"don't: HF_TOKEN={NOT_SHOWN} x"),
        ("KEY_PASSWORD='a\nb' x", f"KEY_PASSWORD={NOT_SHOWN} x"),
    ],
)
def test_secrets_of_settings_options_and_quoted_texts_are_hidden(text: str, shown: str) -> None:
    assert hidden_text(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("curl -ubob:abc https://x", f"curl -u{NOT_SHOWN} https://x"),
        ('curl "-ubob:abc" x', f'curl "-u{NOT_SHOWN}" x'),
        ('curl -u"bob:a c" x', f"curl -u{NOT_SHOWN} x"),
        ("curl --user=bob:abc x", f"curl --user={NOT_SHOWN} x"),
        ("setenv HF_TOKEN abc\nx", f"setenv HF_TOKEN {NOT_SHOWN}\nx"),
        ("set -gx HF_TOKEN 'a c'; y", f"set -gx HF_TOKEN {NOT_SHOWN}; y"),
        ("Command '['x', '--token', 'abc', '-l']' fails", f"'['x', '--token', {NOT_SHOWN}, '-l']'"),
        ("run(['curl', '-u', 'bob:abc', 'u'])", f"run(['curl', '-u', {NOT_SHOWN}, 'u'])"),
        ("Authorization=Digest abc", f"Authorization=Digest {NOT_SHOWN}"),
        ('-H \'Authorization: Digest a="b", c="d"\' u', f"'Authorization: Digest {NOT_SHOWN}' u"),
        (
            '-H "Authorization: Digest a=\\"b\\", c=\\"d\\"" u',
            f'"Authorization: Digest {NOT_SHOWN}" u',
        ),
        ("curl -u $ME:abc u", f"curl -u {NOT_SHOWN} u"),
        ("x --max-tokens 512 --tokenizer abc", "x --max-tokens 512 --tokenizer abc"),
        ("set -e HF_TOKEN", "set -e HF_TOKEN"),
    ],
)
def test_secrets_are_hidden_however_their_name_and_they_are_joined(text: str, shown: str) -> None:
    assert shown in hidden_text(text)


@pytest.mark.parametrize(
    "value",
    [
        *("$(echo abc)", '"$(echo abc)"', "`printf %s abc`", "${X:-abc d}", "$(tr a b <<< abc)"),
        *("$(cat f | sed x; echo -n abc)", "'$(echo abc)'", '"${X:=abc}"'),
    ],
)
def test_a_secret_that_a_shell_expression_spells_out_is_hidden(value: str) -> None:
    assert hidden_text(f"HF_TOKEN={value} x") == f"HF_TOKEN={NOT_SHOWN} x"
    assert "abc" not in hidden_text(f"bash -c 'HF_TOKEN={value} x' y")
    assert "abc" not in hidden_text(f"HF_TOKEN={value[:-1]}")


@pytest.mark.parametrize("value", ["$(cat ~/.token)", "${X}", "${X:-$Y}", "${X:?none}", "`get x`"])
def test_a_shell_expression_that_names_a_place_is_shown(value: str) -> None:
    assert hidden_text(f"HF_TOKEN={value} x") == f"HF_TOKEN={value} x"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["x", "--token", "abc", "y"], ["x", "--token", NOT_SHOWN, "y"]),
        (["curl", "-u", "bob:abc"], ["curl", "-u", NOT_SHOWN]),
        (["curl", "-ubob:abc"], ["curl", f"-u{NOT_SHOWN}"]),
        (["setenv", "HF_TOKEN", "abc"], ["setenv", "HF_TOKEN", NOT_SHOWN]),
        ([{"name": "HF_TOKEN", "value": "abc"}], [{"name": "HF_TOKEN", "value": NOT_SHOWN}]),
        ({"key": "HF_TOKEN", "value": ["abc"]}, {"key": "HF_TOKEN", "value": [NOT_SHOWN]}),
    ],
)
def test_secrets_in_lists_and_pairs_are_hidden(values: Any, shown: Any) -> None:
    assert hidden_values(values) == shown
    assert hidden_values(shown) == shown


@pytest.mark.parametrize(
    "values",
    [
        ["--token", "$HF_TOKEN", "--token", "--lr", "0.1", "--token", 7],
        ["--max-tokens", "512", "--pad_token", "<pad>", "--num_keys", "a", "--tokenizer", "b"],
        ["python", "-u", "train.py", "HF_TOKEN", "x"],
        [{"name": "tokenizer", "value": "abc"}, {"name": "lr", "value": "1"}],
    ],
)
def test_lists_and_pairs_without_a_secret_are_left_alone(values: list[Any]) -> None:
    assert hidden_values(values) == values


def test_an_override_that_is_a_list_or_mapping_is_hidden_as_the_spec_is() -> None:
    name = "stages.a.config.more"
    hidden = f'{name}=["--api-key", "{NOT_SHOWN}"]'
    assert hidden_setting(f'{name}=["--api-key", "abc"]') == hidden
    assert hidden_setting(f"--set={name}=[--api-key, abc]") == f"--set={hidden}"
    pair = f'{name}=[{{"name": "HF_TOKEN", "value": "{NOT_SHOWN}"}}]'
    assert hidden_setting(f"{name}=[{{name: HF_TOKEN, value: abc}}]") == pair
    assert "abc" not in hidden_setting(f'{name}=["--token", "abc"')  # no YAML
    assert hidden_setting(f"{name}=[1,  two]") == f"{name}=[1,  two]"


@pytest.mark.parametrize(
    "word",
    [
        *("ab,cd", "p&q", '"a\\"b c"', "'it'\\''s x'", "a\\ b", "ab'c d'\"e f\"g", "ab}cd)e"),
        *("'$ecret'", "$'a\\tb'", "(not", "+=x"),
    ],
)
def test_a_secret_is_hidden_to_the_end_of_the_shells_word(word: str) -> None:
    for before, after in (("export DB_PASSWORD=", ""), ("x --password=", " y"), ("a_PWD=", "; b")):
        assert hidden_text(f"{before}{word}{after}") == f"{before}{NOT_SHOWN}{after}"


def test_what_is_hidden_already_stays_as_it_is() -> None:
    once = hidden_text("HF_TOKEN=abcd x --token abc y", ["abcd"])
    assert once == f"HF_TOKEN={NOT_SHOWN} x --token {NOT_SHOWN} y"
    assert hidden_text(once) == once


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pa@ss@host/r.git", "https://host/r.git"),
        ("https://ghp_abc@github.com/r", "https://github.com/r"),
        ("ssh://git:pw@host:22/r", "ssh://git@host:22/r"),
        ("git@github.com:me/r.git", "git@github.com:me/r.git"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://me:pa/ss@host/x.tar", "https://host/x.tar"),
        ("https://u:/pw@host/x.tar", "https://host/x.tar"),
        ("https://u:123456/pw@host/x.tar", "https://host/x.tar"),
        ("https://me:1a/ss@host/x.tar", "https://host/x.tar"),
        ("ssh://git:p/w@host:22/r", "ssh://git@host:22/r"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("git+https://me:abc@host/r.git@main", "git+https://host/r.git@main"),
        ("https://me:abc@host/x.tar,admin@host.org", "https://host/x.tar,admin@host.org"),
        ("admin@host.org", "admin@host.org"),
        ("https://[::1]:8080/a@b", "https://[::1]:8080/a@b"),
        ("https://a:b/c@d,https://e/f@g", "https://d,https://e/f@g"),
    ],
)
def test_urls_lose_their_users_and_nothing_else(url: str, shown: str) -> None:
    assert without_url_users(f"from {url} on") == f"from {shown} on"


def test_a_setting_on_the_command_line_is_hidden_to_its_end() -> None:
    word = "stages.a.environment.HF_TOKEN=one two, three"
    assert hidden_setting(word) == f"stages.a.environment.HF_TOKEN={NOT_SHOWN}"
    assert hidden_setting(f"--set={word}") == f"--set=stages.a.environment.HF_TOKEN={NOT_SHOWN}"
    assert hidden_setting("--token=a=b c") == f"--token={NOT_SHOWN}"
    assert hidden_setting("--set=stages.a.shell=x y=z") == "--set=stages.a.shell=x y=z"
    assert NOT_SHOWN in hidden_setting("stages.a.environment={HF_TOKEN: abc}")
    assert "abc" not in hidden_setting("stages.a.environment={HF_TOKEN: abc}")
    assert hidden_setting("stages.a.resources.nodes=2") == "stages.a.resources.nodes=2"


def test_texts_but_not_numbers_under_a_secret_name_are_hidden_at_any_depth() -> None:
    values = {"config": [{"api_key": "abc", "max_tokens": 7, "auth": {"user": ["abc"], "n": 1}}]}
    assert hidden_values(values) == {
        "config": [{"api_key": NOT_SHOWN, "max_tokens": 7, "auth": {"user": [NOT_SHOWN], "n": 1}}]
    }
    assert values["config"][0]["api_key"] == "abc"  # the argument is not changed


def test_a_known_secret_is_hidden_wherever_it_is_repeated() -> None:
    spec = {"environment": {"HF_TOKEN": "hunter22", "PIN_PASSWORD": "abc"}, "shell": "x hunter22!"}
    known = known_secrets(spec)
    assert known == {"hunter22"}  # a short one would tear other words apart
    assert hidden_values(spec, known)["shell"] == f"x {NOT_SHOWN}!"


NUM_CHARACTERS = 800
MOST_STEPS = 250
"""Steps for each character. The worst of 300 texts needed 124, and half of them fewer than 20."""
PIECES = (
    *("token=", "TOKEN: ", "'", '"', "\\", '\\"', "$(", ")", "(", "-u ", "-u", "a:", "A_", "_KEY"),
    *("://", "@", "\n", " ", "\t", "{", "}", "[", "]", "auth: Digest ", "setenv ", "set -x ", "`"),
    *("--token ", "${", "x", "x" * 30, "=", "+=", ":", ",", "'--token', ", "--user=", "MAX_", "&"),
    *("Bearer ", "\\\n", "echo ", "<<<", "password", "-", ".", "TOKENS_", "?", "http", "''", "1"),
    NOT_SHOWN,
)


class Counter:
    """Steps of all patterns and searches of one text."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, num_steps: int) -> None:
        self.left -= num_steps
        assert self.left > 0, "the work is not bounded by the length of the text"


class CountedPattern:
    """A pattern that counts the steps of what is done with it."""

    def __init__(self, pattern: re.Pattern[str], counter: Counter) -> None:
        self._pattern = pattern
        self._counter = counter

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any) -> Any:
            text, start = args[1 if method == "sub" else 0], 0
            if method in ("match", "search") and len(args) > 1:
                start = args[1]
            kind = "sub" if method == "findall" else method
            limit = self._counter.left
            self._counter.spend(count_steps(self._pattern, text, kind, limit, start=start))
            return getattr(self._pattern, method)(*args)

        return call


class CountedText(str):
    """A text that counts the characters in which it is searched."""

    __slots__ = ("counter",)

    def find(self, part: str, start: int = 0, end: int | None = None) -> int:
        end = len(self) if end is None else end
        place = str.find(self, part, start, end)
        self.counter.spend((end if place < 0 else place) - start)
        return place

    def rfind(self, part: str, start: int = 0, end: int | None = None) -> int:
        end = len(self) if end is None else end
        place = str.rfind(self, part, start, end)
        self.counter.spend(end - max(start, place))
        return place


@pytest.fixture
def hide(monkeypatch):
    """`hidden_text` with a bound on its work, in steps for each character."""

    def hide_counted(text: str) -> str:
        counter = Counter(MOST_STEPS * len(text) + 1000)
        counted = CountedText(text)
        counted.counter = counter
        with monkeypatch.context() as patch:
            for name, value in vars(redact).items():
                if isinstance(value, re.Pattern):
                    patch.setattr(redact, name, CountedPattern(value, counter))
            words = {key: CountedPattern(value, counter) for key, value in redact._WORDS.items()}
            patch.setattr(redact, "_WORDS", words)
            return hidden_text(counted)

    return hide_counted


REPORTED = (
    *("A_" * 600 + "=1", "'" + "auth: Digest x " * 80, "x://" + "a." * 600, "x://a:b" * 600),
    *(f"\n'token=x\"{NOT_SHOWN} " * 30, "token: [ " * 90, "token=$x" * 100, "token=`;" * 100),
)
REPEATED = (
    *("a", "a=", "token=", "://@", "x://a:/b", "--a ", 'token="\\', "token='\n", "token=x' ", "'"),
    *("token=$(", "token=$( ()", "token=`", "-ua:x,", "--user=a:$,", "--user=a/", "token=${X:-"),
    *("setenv token ", "'--token', '", f"token={NOT_SHOWN} ", "\n'token=x\""),
)


@pytest.mark.parametrize("text", [*REPORTED, *(text * (1200 // len(text)) for text in REPEATED)])
def test_a_text_that_took_minutes_is_read_in_bounded_steps(hide, text):
    assert hide(text) == hidden_text(text)


@pytest.mark.parametrize("seed", range(30))
def test_the_steps_are_bounded_by_the_length_of_any_text(hide, seed):
    chance = random.Random(seed)
    repeated = "".join(chance.choices(PIECES, k=chance.randrange(1, 5)))
    start, end = ("".join(chance.choices(PIECES, k=chance.randrange(3))) for _ in range(2))
    text = start + repeated * (NUM_CHARACTERS // len(repeated)) + end
    assert hide(text) == hidden_text(text)
    mixed = "".join(chance.choices(PIECES, k=NUM_CHARACTERS // 5))
    assert hide(mixed) == hidden_text(mixed)


def test_a_name_that_is_too_long_for_one_is_a_secrets():
    assert not looks_secret("a" * MAX_NAME_CHARS)
    assert looks_secret("a" * (MAX_NAME_CHARS + 1))
    assert hidden_text("a" * 300 + "=1 x") == "a" * 300 + f"={NOT_SHOWN} x"


def test_a_text_is_hidden_whole_where_too_many_secrets_are_known():
    known = [f"secret-{number}" for number in range(MAX_KNOWN + 1)]
    assert hidden_text("a text", known) == NOT_SHOWN
    assert hidden_text("a text", known[:-1]) == "a text"
    assert hidden_text("", known) == ""


def test_a_header_with_an_open_quote_is_hidden_to_its_lines_end():
    assert hidden_text("x 'auth: Digest abc\ny") == f"x 'auth: Digest {NOT_SHOWN}\ny"
