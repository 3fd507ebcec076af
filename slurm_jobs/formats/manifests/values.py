"""Conversion of a row's values to messages: captions, questions and conversations.

Each file format reads values in its own way; this module interprets them for all formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurm_jobs.formats.manifests.first_turns import check_first_question, without_leading_answers
from slurm_jobs.formats.manifests.keys import (
    FILE_NAMES,
    QUESTION_PARTS,
    SPELLINGS,
    TURN_KEYS,
    BadRowError,
    Meaning,
    is_chat_part,
    is_empty,
    is_metadata,
    kind_of,
    left_out_media,
    lettered_choice,
    limits_learning,
    looks_like_picture,
    names_answers,
    normal,
    question_part,
    says_nothing,
    shorten,
    unread_problem,
    values_of_keys,
    yes_or_no,
)
from slurm_jobs.formats.manifests.marks import foreign_mark
from slurm_jobs.formats.manifests.messages import Content, ManifestRow, Message, RowOrigin, bad_row
from slurm_jobs.formats.manifests.row_notes import answer_note
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.row_pictures import WEB, listed_pictures
from slurm_jobs.formats.manifests.row_shapes.earlier_turns import (
    check_no_earlier_turns,
    earlier_turns,
)
from slurm_jobs.formats.manifests.row_shapes.row_values import RowValues
from slurm_jobs.formats.manifests.row_shapes.shape_table import rewrite_row
from slurm_jobs.formats.manifests.splits import split_of_column
from slurm_jobs.formats.manifests.turns import (
    check_characters,
    fill_images,
    name_images,
    printable,
    read_turns,
    split_marks,
    turns_of,
)

TOO_DEEP = "lists or mappings are nested too deeply to be read"


def read_row(
    origin: RowOrigin, value: object, options: RowOptions, *, unread: Iterable[str] = ()
) -> ManifestRow:
    """Return a row of any format; one that cannot be used has its `problem`.

    `value` maps its columns or keys; `unread` names columns whose values were not read.
    """
    if not isinstance(value, Mapping):
        problem = (
            f"the row is {kind_of(value)}, expected an object with keys such as `messages`, or "
            "`image` and `text`"
        )
        return bad_row(origin, problem)
    row = _Row(value, options)
    source, problem = "", ""
    messages: tuple[Message, ...] = ()
    left_out: list[str] = []
    try:  # in this order: each call takes the values that it reads out of `row`
        if options.columns.ignore:
            left_out += [key for key, _ in values_of_keys(value, options.columns.ignore)]
        row.check_replaced()
        rewrite_row(row.values)
        pictures = row.take_pictures()
        source = row.source(pictures)
        messages = row.messages(pictures)
        row.check_unread(has_picture=bool(pictures) or _has_image(messages))
        _check_marks(messages)
        check_characters(messages)
    except BadRowError as error:
        problem = printable(str(error))
    except RecursionError:  # the parser reads values that are nested more deeply than we can look
        problem = TOO_DEEP
    # The turns of a table are JSON in a text, whose keys are known once the turns were read.
    left_out += [key for key, _ in row.left_out_items]
    left_out_once = tuple(dict.fromkeys(left_out))
    keys = tuple(printable(str(key)) for key in value)
    if problem:
        bad = bad_row(origin, problem, source=source)
        return replace(bad, keys=keys, left_out=left_out_once)
    if not source:
        images = (item for message in messages for item in message.content)
        source = next((printable(item.value) for item in images if item.kind == "image"), "")
    ignored = dict.fromkeys((*row.ignored, *(key for key in unread if not is_metadata(key))))
    return ManifestRow(
        origin=origin,
        source=source,
        messages=name_images(messages),
        ignored=tuple(printable(key) for key in ignored),
        keys=keys,
        splits=row.splits(),
        notes=tuple(dict.fromkeys(row.notes)),
        left_out=left_out_once,
    )


class _Row:
    """Values of one row by their meaning."""

    def __init__(self, value: Mapping[str, Any], options: RowOptions) -> None:
        self._value = value
        self._options = options
        self.values = RowValues(options.columns)
        self._held = self.values.held
        self._others = self.values.others
        self.ignored = self.values.ignored
        self.notes = self.values.notes
        self.left_out_items: list[tuple[str, Any]] = []
        """Keys of `columns.ignore` in the row and in turns that were read, and their values."""
        for key, item in value.items():
            if not isinstance(key, str):
                continue
            meaning = options.meaning(key)
            if meaning is not None:
                self._held.setdefault(meaning, {})[key] = item
            elif not options.ignores(key):
                self.values.add_other(key, item)
            elif key in options.columns.ignore:
                self.left_out_items.append((key, item))
            # Any other key is of a picture, and `columns.image` names the one that is read.

    def source(self, pictures: Sequence[Content]) -> str:
        """Return the row's own `id`, else its first image, else empty."""
        own_id = next((v for v in self._held.get("id", {}).values() if v is not None), None)
        if own_id is not None:
            return printable(str(own_id))
        return printable(pictures[0].value) if pictures else ""

    def splits(self) -> tuple[tuple[str, str], ...]:
        """Return columns that name the row's split of the data set, with their values."""
        return tuple(
            (printable(key), printable(str(value)))
            for key, value in self._others.items()
            if split_of_column(normal(key), value) is not None
        )

    def take_pictures(self) -> Sequence[Content]:
        """Return the images that the row lists.

        Raises:
            BadRowError: two columns contradict each other, or an image has unread content.
        """
        listed = listed_pictures(
            self._held.get("image", {}), self._others, self._options.columns.ignore
        )
        self.ignored += listed.ignored
        for key in listed.file_columns:
            del self._others[key]
        return listed.images

    def messages(self, pictures: Sequence[Content]) -> tuple[Message, ...]:
        """Return the row's conversation.

        Raises:
            BadRowError: there is none, or it is invalid.
        """
        turns = self._held.get("turns", {})
        column = _turns_column(turns)
        if column is not None and not self._reads_answer_instead(column):
            self._check_columns_beside(column)
            self._ignore("text", "prompt")
            others = [key for key in turns if key != column]
            self.ignored += [key for key in others if not is_empty(turns[key])]
            check_no_earlier_turns(self.values)
            return self._conversation(normal(column), turns[column], pictures)
        answers = self._held.get("text", {})
        if not answers:
            raise BadRowError(self._no_turns(is_null=bool(turns)))
        self._ignore("turns")
        return self._answer(answers, pictures)

    def _reads_answer_instead(self, turns_column: str) -> bool:
        """Check whether `columns.text` names the answer, so that the turns are not read.

        Raises:
            BadRowError: the answer is empty.
        """
        text = self._options.columns.text
        if text is None or self._options.columns.messages is not None:
            return False
        if is_empty(self._value[turns_column]):
            return False
        if is_empty(self._value.get(text)):
            message = (
                f"`{text}`, which `columns.text` names, is empty, but `{turns_column}` holds "
                f"turns; set `columns: {{messages: {turns_column}}}` to read them, or "
                f"`columns: {{ignore: [{turns_column}]}}` to leave them out"
            )
            raise BadRowError(message)
        return True

    def _check_columns_beside(self, turns_column: str) -> None:
        """Raise on an answer or a question that `columns` names next to turns that are read."""
        columns = self._options.columns
        if is_empty(self._value[turns_column]):
            return
        for option, column in (("text", columns.text), ("prompt", columns.prompt)):
            if column is not None and not is_empty(self._value.get(column)):
                remedy = f"set `columns: {{ignore: [{turns_column}]}}`"
                remedy = "take `columns.messages` out" if columns.messages else remedy
                message = (
                    f"`{turns_column}` holds turns, and `{column}`, which `columns.{option}` "
                    f"names, is no part of them; {remedy}, or take `columns.{option}` out"
                )
                raise BadRowError(message)

    def check_replaced(self) -> None:
        """Raise on a row whose configured column is empty, while another with its meaning is not.

        Raises:
            BadRowError: there is such a column.
        """
        has_turns = not all(map(is_empty, self._held.get("turns", {}).values()))
        read_from_turns = ("text", "prompt") if has_turns else ()
        for key, value in self._value.items():
            pair = self._options.replaced_by(key) if isinstance(key, str) else None
            if pair is None or says_nothing(value) or (isinstance(value, str) and value.isspace()):
                continue
            option, column = pair
            if normal(key) in FILE_NAMES and not looks_like_picture(value):
                continue
            is_column_empty = says_nothing(self._value.get(column))
            if is_column_empty and option not in read_from_turns:
                remedy = (
                    f"write its picture into `{column}`, or remove the row"
                    if option == "image"
                    else f"set `columns: {{ignore: [{key}]}}` to leave it out"
                )
                message = (
                    f"`{column}`, which `columns.{option}` names, is empty, but `{key}` is not; "
                    f"{remedy}"
                )
                raise BadRowError(message)

    def _no_turns(self, *, is_null: bool) -> str:
        """Return why a row without turns and without a column of the answer is refused."""
        if is_null:
            return "no turns: the cell is null"
        if {"images", "annotations"} <= self._value.keys():
            return (
                "a file of COCO's annotations, which holds no captions with names of pictures; "
                "write a list of rows with `image` and `text`"
            )
        keys = shorten([key for key in self._value if isinstance(key, str)])
        parts = [*self._held.get("prompt", {}).values(), *self._held.get("image", {}).values()]
        has_question_or_picture = not all(map(says_nothing, parts))
        for key, value in self._value.items():
            first = value[0] if isinstance(value, list) and value else None
            names = set(map(normal, map(str, first))) if isinstance(first, Mapping) else set()
            if names & {"role", "from"}:
                return f"`{key}` holds turns; set `columns: {{messages: {key}}}` to read them"
            meanings = {SPELLINGS.get(name) for name in names}
            if has_question_or_picture and {"prompt", "text"} <= meanings:
                return (
                    f"`{key}` holds questions with answers; write a row for each, or the turns of "
                    "one conversation as `messages`"
                )
            holds_answers = first is not None and ("text" in meanings or names_answers(key))
            if has_question_or_picture and holds_answers:
                return (
                    f"`{key}` is a list of answers; set `columns: {{text: {key}}}` to learn one of "
                    "them, or write a row for each"
                )
            if not names.isdisjoint(SPELLINGS):
                return f"`{key}` holds a list of rows; write that list alone as the manifest"
        return (
            "neither `messages` nor `conversations`, nor an answer (`text`, `caption`, `answer`, "
            f"...); the keys are {keys}. Name one in the config: `columns: {{text: NAME}}`, or "
            "`columns: {messages: NAME}`"
        )

    def _conversation(
        self, column: str, value: Any, pictures: Sequence[Content]
    ) -> tuple[Message, ...]:
        """Return the messages of the turns, which begin with a question and end with an answer.

        The prompts of the options are for captions and questions, so they are not added here.
        """
        messages = self._with_system(self._read_turns(column, value))
        if messages[-1].role != "assistant":
            message = f"the last turn is the {messages[-1].role}'s, expected the assistant's"
            raise BadRowError(message)
        asked = without_leading_answers(messages)
        if len(asked) < len(messages):
            self.notes.append("answer_left_out")
        filled = fill_images(asked, pictures)
        check_first_question(filled)
        self._note_answers(filled, is_caption=False)
        self._check_chat_parts(filled)
        return filled

    def _read_turns(self, column: str, value: Any) -> list[Message]:
        """Return the messages of all turns, and record the keys that are not read."""
        pair = ("user", "assistant")
        wanted = {"conversations": ("from", "value"), "texts": pair, "conversation": pair}
        messages: list[Message] = []
        for turn in turns_of(value):
            self.left_out_items += values_of_keys(turn, self._options.columns.ignore)
            turn_messages, ignored = read_turns(
                turn,
                wanted=wanted.get(column, ("role", "content")),
                is_first=not messages,
                ignore=self._options.columns.ignore,
            )
            messages += turn_messages
            self.ignored += [f"{column}[].{key}" for key in ignored]
        return messages

    def _with_system(self, messages: list[Message]) -> list[Message]:
        """Return the messages with the row's `system` at the beginning, unless a turn says it."""
        system = self._text("system")
        if not system:
            return messages
        turn = next((message for message in messages if message.role == "system"), None)
        if turn is None or not turn.content:
            others = [message for message in messages if message is not turn]
            return [_text_message("system", system), *others]
        if turn.text.strip() != system.strip():
            texts = f"{shorten(system)}, and a turn of the system {shorten(turn.text)}"
            message = f"`system` is {texts}"
            raise BadRowError(message)
        return messages

    def _check_chat_parts(self, messages: Iterable[Message]) -> None:
        """Raise if a key next to the turns has text that belongs to them and no turn has."""
        all_text = " ".join(" ".join(message.text.split()) for message in messages)
        for key, other in {**self._held.get("prompt", {}), **self._others}.items():
            if is_chat_part(key, other) and not all(text in all_text for text in _texts(other)):
                message = (
                    f"`{key}` holds words that the turns do not have, which are not read; write "
                    f"them into the turns, or set `columns: {{ignore: [{key}]}}` to leave them out"
                )
                raise BadRowError(message)

    def _check_question_parts(self, question: str) -> None:
        """Raise if a key next to the question holds a part of it."""
        first_choice = lettered_choice(self._others) if question else ""
        for key, value in self._others.items():
            part = QUESTION_PARTS["choices"] if key == first_choice else question_part(key, value)
            # Without a question only `input` is the user's: a caption may have a `context`.
            if part and (question or normal(key) in ("input", "inputs")):
                remedy = (
                    "write them into the column of the question"
                    if question
                    else f"set `columns: {{prompt: {key}}}` if they are the question"
                )
                message = (
                    f"`{key}` holds {part}, which are not read; {remedy}, or set "
                    f"`columns: {{ignore: [{key}]}}` to leave them out"
                )
                raise BadRowError(message)

    def _answer(
        self, answers: Mapping[str, Any], pictures: Sequence[Content]
    ) -> tuple[Message, ...]:
        """Return a caption, or a question and its answer."""
        question = self._text("prompt")
        self._check_question_parts(question)
        answer = self._text("text")
        if not answer:
            name = next(iter(answers))
            is_null = answers[name] is None
            message = f"`{name}` is {'null, expected a string' if is_null else 'empty'}"
            raise BadRowError(message)
        if not pictures and not question:
            raise self._no_image()
        system = self._text("system") or self._options.system_prompt
        messages = [_text_message("system", system)] if system else []
        if not question:
            check_no_earlier_turns(self.values)
        messages += earlier_turns(self.values)
        if question:
            messages.append(Message(role="user", content=tuple(split_marks(question))))
        else:
            messages.append(_text_message("user", self._options.prompt))
        messages.append(_text_message("assistant", answer))
        filled = fill_images(messages, pictures)
        check_first_question(filled)
        self._note_answers(filled, is_caption=not question)
        return filled

    def _note_answers(self, messages: Sequence[Message], *, is_caption: bool) -> None:
        for message in messages:
            if message.role == "assistant" and message.is_learned:
                note = answer_note(message.text, is_caption=is_caption)
                if note is not None:
                    self.notes.append(note)

    def _no_image(self) -> BadRowError:
        """Return the error for a missing image; a key with other content is the better reason."""
        try:
            self.check_unread(has_picture=False)
        except BadRowError as error:
            return error
        names = [key for key, value in self._held.get("image", {}).items() if value is not None]
        problem = "no image: neither a path nor bytes"
        if names:
            problem = f"`{names[0]}` is empty, and a caption without a picture describes nothing"
        for key, value in self._others.items():
            if isinstance(value, str) and value.startswith(WEB):
                problem += f"; `{key}` is a web address, which is not fetched: download the files"
                break
        return BadRowError(problem)

    def _ignore(self, *meanings: Meaning) -> None:
        for meaning in meanings:
            held = self._held.get(meaning, {})
            self.ignored += [key for key, value in held.items() if not is_empty(value)]

    def _text(self, meaning: Meaning) -> str:
        """Return the only text of a meaning; empty if all are blank.

        Raises:
            BadRowError: columns contradict each other, or one is not text.
        """
        held = self.values.filled(meaning)
        for key, value in held.items():
            if not isinstance(value, str):
                message = f"`{key}` is {kind_of(value)}, expected a string{_remedy(value)}"
                raise BadRowError(message)
        held = {key: value for key, value in held.items() if value.strip()}
        if len(set(held.values())) > 1:
            names = " and ".join(f"`{key}`" for key in held)
            message = (
                f"{names} differ, and each could be the {_NAMES[meaning]}; set "
                f"`columns: {{{meaning}: {next(iter(held))}}}` in the config, or another of them"
            )
            raise BadRowError(message)
        return next(iter(held.values()), "")

    def check_unread(self, *, has_picture: bool) -> None:
        """Record the keys that are not read.

        Raises:
            BadRowError: one holds content, so that the rest of the row has another meaning.
        """
        if not has_picture:
            self._check_left_out()
        for key, value in self._others.items():
            if says_nothing(value):
                continue
            self._check_loss(key, value)
            problem = unread_problem(key, value, has_picture=has_picture)
            if problem is not None:
                remedy = f"`columns: {{ignore: [{key}]}}` to leave it out"
                message = f"{problem.text}; set {remedy}"
                if not has_picture and left_out_media(key, value) is not None:
                    is_image = problem.kind == "picture"
                    read = f"set `columns: {{image: {key}}}` to read it, or " if is_image else ""
                    message = (
                        f"{problem.text}, and the row has no other picture; {read}remove the row"
                    )
                raise BadRowError(message)
            if not is_metadata(key):
                self.ignored.append(key)

    def _check_left_out(self) -> None:
        """Raise if a key that the user leaves out is the only one with a picture."""
        for key, value in self.left_out_items:
            media = left_out_media(key, value)
            if media is not None:
                held = "a picture" if media == "picture" else media
                message = (
                    f"`{key}`, which `columns.ignore` names, holds {held}, and the row has no "
                    "picture that is read: its answer would be learned blind. Remove the row, or "
                    "this key from it if the answer does not depend on it"
                )
                raise BadRowError(message)

    def _check_loss(self, key: str, value: Any) -> None:
        """Raise if a key limits what is learned of the whole row, or marks it as a preference."""
        if limits_learning(key, value):
            message = (
                f"`{key}` of a whole row is not supported; write `loss: false` into the turns that "
                f"are not learned, or set `columns: {{ignore: [{key}]}}` to learn all answers"
            )
            raise BadRowError(message)
        is_label = normal(key) == "label" and yes_or_no(value) is not None
        if is_label and self._has_completion():
            message = (
                f"`{key}` next to `completion` is preference data, which is not supported; set "
                f"`columns: {{ignore: [{key}]}}` to leave it out"
            )
            raise BadRowError(message)

    def _has_completion(self) -> bool:
        for key in self._value:
            if isinstance(key, str) and normal(key) == "completion":
                return self._options.meaning(key) == "text"
        return False


_NAMES: Mapping[Meaning, str] = {
    "text": "assistant's answer",
    "prompt": "user's words",
    "system": "system message",
}


def _turns_column(turns: Mapping[str, Any]) -> str | None:
    """Return the column of turns that is read: the first with turns, else the first not null."""
    order = [key for name in TURN_KEYS for key in turns if normal(key) == name]
    order = order or list(turns)  # the one that `columns.messages` names
    for key in order:
        if not is_empty(turns[key]):
            return key
    return next((key for key in order if turns[key] is not None), None)


def _remedy(value: Any) -> str:
    """Return what to write instead of a value that is no text."""
    if isinstance(value, list | tuple):
        return "; write one text, or a row for each"
    if isinstance(value, int | float):
        return "; write it as a text, and a class by its name"
    return ""


def _texts(value: Any) -> list[str]:
    """Return all texts within a value, without line breaks."""
    if isinstance(value, str):
        return [" ".join(value.split())]
    values = value.values() if isinstance(value, Mapping) else value
    return [
        text
        for item in (values if isinstance(value, list | tuple | Mapping) else ())
        for text in _texts(item)
    ]


def _has_image(messages: Iterable[Message]) -> bool:
    return any(item.kind == "image" for message in messages for item in message.content)


def _check_marks(messages: Iterable[Message]) -> None:
    """Raise on a text with a mark for unread media: it would be learned as words."""
    has_images = _has_image(messages)
    texts = ((m.role, item.value) for m in messages for item in m.content if item.kind == "text")
    for role, text in texts:
        mark = foreign_mark(text, has_images=has_images, is_users=role == "user")
        if mark:
            message = (
                f"a text of the {role} has the mark {mark}, which is not read; write `<image>` for "
                "a picture that the row lists, or remove the mark"
            )
            raise BadRowError(message)


def _text_message(role: str, text: str) -> Message:
    return Message(role=role, content=(Content(kind="text", value=text),))
