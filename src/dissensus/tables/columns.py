"""Which column holds what: by the names people give them, or as told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from dissensus.errors import DataError, did_you_mean, nearest, setting
from dissensus.labels.vocabulary import quoted

# What people call each column, surest names first. Case, white space and hyphens do not matter ("Worker ID"
# is worker_id), and a plain word stands for its ids as well (task for task_id, annotator for annotators).
_NAMES = {
    "item": (
        "item",
        "task unit document doc example question instance sample object",
        "message_id sentence_id text_id tweet_id comment_id post_id image_id hit_id record_id case_id",
        "prompt",
        "id idx",
    ),
    "annotator": (
        "annotator",
        "worker user rater coder judge labeler labeller contributor participant evaluator reviewer assessor "
        "observer scorer grader performer respondent annotated_by labeled_by labelled_by completed_by",
        "model",
    ),
    "label": (
        "label",
        "response answer annotation class category choice judgement judgment rating vote grade score verdict "
        "decision preference labels value",
        "annotations answers ratings responses judgments votes scores",
    ),
    "gold": (
        "gold gold_label truth ground_truth true_label reference correct",
        "label true_class correct_label correct_answer expert_label reference_label",
        "answer class category response value",
    ),
}
# What is shown or asked, where there is an id as well.
_SHOWN = ("question", "unit", "sample", "object", "category", "prompt")
_PLAIN = {"item": "task", "annotator": "worker"}  # as good as the roles' own names: crowd-kit's
_OPTIONS = {"gold": "label", "text": "text_column"}  # settings that have another name than their role

# What people call the text of an item, surest names first, and other columns that describe an item.
TEXT_NAMES = ("text", "sentence", "content", "message", "comment", "tweet", "document", "body", "title")
ITEM_SIDE = frozenset({*TEXT_NAMES, "split", "url"})

# What people call remarks of annotators, and times.
_REMARKS = {
    "comments", "note", "notes", "remark", "remarks", "feedback", "explanation", "reason", "reasons",
    "rationale", "justification", "time", "date", "timestamp", "datetime", "duration", "seconds", "created",
    "updated", "started", "submitted", "completed", "lead_time", *TEXT_NAMES,
}  # fmt: skip

_MOST_SHOWN = 12
_MOST_COMPARED = 200  # names that are looked at for one that was meant
_LONGEST_SHOWN = 40


def find_column(
    columns: Sequence[str],
    role: str,
    given: str | None,
    where: str,
    taken: Collection[str] = (),
    later: Sequence[str] = (),
) -> str:
    """The column of a role: the one given, or the one whose name says so.

    ``later`` are roles that are looked for next: those without a column are named in the same message.
    """
    if given is not None:
        alike = [name for name in columns if name.strip().casefold() == given.strip().casefold()]
        if given in columns or len(alike) == 1:
            return given if given in columns else alike[0]
        hint = did_you_mean(given, columns[:_MOST_COMPARED])
        raise DataError(f"{where}: there is no column {quoted(given)}; {hint}it has {listed(columns)}")
    free = [name for name in columns if name not in taken]
    if role == "item" and sum(_full(name) in ("id", "idx") for name in free) == 1:
        free = [name for name in free if _full(name) not in _SHOWN]
    for names in _NAMES[role]:
        found = [name for name in free if _is_called(name, names.split(), role)]
        found = [name for name in found if _full(name).endswith("id")] or found
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(
                f"{where}: {' and '.join(map(quoted, found))} could each be the {role} column; "
                f"choose one with {setting(_OPTIONS.get(role, role))}"
            )
    raise _not_found(free, columns, role, where, [other for other in later if not has_column(free, other)])


def only_column_left(columns: Sequence[str], annotator: Any, label: Any) -> str | None:
    """The column of items where no name tells: the one beside the columns of annotators and of labels.

    None where either of these is not known, where several columns are left, or where the only one has the
    name of something else.
    """
    others = [
        [given] if given is not None else [name for name in columns if has_column([name], role)]
        for role, given in (("annotator", annotator), ("label", label))
    ]
    used = [name for names in others for name in names]
    left = [name for name in columns if name not in used and name.strip()]
    certain = [len(names) for names in (*others, left)] == [1, 1, 1]
    taken = any(has_column(left, role) for role in ("annotator", "label", "gold"))
    return left[0] if certain and not taken else None


def other_item_columns(columns: Sequence[str], item: str) -> list[str]:
    """Where items have a plain ``id``: the columns that may name them as well (question, sample …)."""
    if _full(item) not in ("id", "idx"):
        return []
    return [name for name in columns if _full(name) in _SHOWN]


def guess_words(taken: Mapping[str, str], given: Collection[str]) -> str:
    """What was taken for what; empty where columns are called as their roles are, or task and worker."""
    own = {role: _full(name).removesuffix("s") in (role, _PLAIN.get(role)) for role, name in taken.items()}
    guessed = [role for role in taken if role not in given and not own[role]]
    if not guessed:
        return ""
    words = ", ".join(f"{role} from {quoted(name)}" for role, name in taken.items())
    options = ", ".join(setting(_OPTIONS.get(role, role)) for role in taken)
    return f"read {words}; where that is wrong, name the column with {options}"


def refuse_several_missing(columns: Sequence[str], given: Any, where: str) -> None:
    """One message where two or all three columns cannot be found."""
    roles = [role for role in ("item", "annotator", "label") if getattr(given, role) is None]
    missing = [role for role in roles if not has_column(columns, role)]
    if len(missing) > 1:
        options = ", ".join(map(setting, missing))
        no_table = "; if it is no table, give one with a row for each label" if len(missing) == 3 else ""
        raise DataError(
            f"{where}: no {', no '.join(missing[:-1])} and no {missing[-1]} column found; "
            f"say which they are with {options}{_one_row_an_item()}; it has {listed(columns)}{no_table}"
        )


def refuse_one_for_two(names: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Item, annotator and label have a column each."""
    if len(set(names)) < len(names):
        raise DataError(
            f"{where}: item, annotator and label must be three columns, got {', '.join(names)}; "
            f"it has {listed(columns)}"
        )


def has_column(columns: Sequence[str], role: str) -> bool:
    """Whether some column's name says that it has this role."""
    return any(_is_called(name, _known(role), role) for name in columns)


def is_id(name: str) -> bool:
    """Whether a column's name says that it holds ids, of whatever: review_id, "Photo ID"."""
    return _full(name).split("_")[-1] == "id"


def refuse_doubled(columns: Sequence[str], where: str) -> None:
    """Every column that has a name has it alone."""
    names = [name.strip() for name in columns if name.strip()]
    doubled = first_repeat(names)
    if doubled is not None:
        raise DataError(f"{where}: the column {quoted(doubled)} occurs twice; rename or remove one")


def listed(names: Iterable[Any]) -> str:
    """Names as a message lists them: on one line, not too many, none too long."""
    texts = [" ".join(str(name).split())[:_LONGEST_SHOWN] or "(no name)" for name in names]
    more = f", … ({len(texts)} in all)" if len(texts) > _MOST_SHOWN else ""
    return ", ".join(texts[:_MOST_SHOWN]) + more or "none"


def first_repeat(names: Iterable[str]) -> str | None:
    """The first name that occurred before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _not_found(
    free: Sequence[str], columns: Sequence[str], role: str, where: str, missing: Sequence[str]
) -> DataError:
    others = [other for other in ("item", "annotator", "label") if other != role]
    unknown = [name for name in free if not any(has_column([name], other) for other in others)]
    some = unknown[:_MOST_COMPARED]
    likely = [name for name in some if not is_remark(name)]
    near = next((name for name in likely if nearest(_full(name), _known(role), 0.75)), None)
    hint = f"did you mean {quoted(near)}? S" if near is not None else "s"
    long = len(unknown) < 2 or (has_column(columns, "label") and has_column(columns, "annotator"))
    options, option = ", ".join(map(setting, missing)), setting(_OPTIONS.get(role, role), near)
    also = f"; nor is there a column of {' or '.join(f'{other}s' for other in missing)} ({options})"
    return DataError(
        f"{where}: no {role} column found; {hint}ay which it is with {option}"
        f"{'' if long else _one_row_an_item()}{also if missing else ''}; it has {listed(columns)}"
    )


def _one_row_an_item() -> str:
    wide, counts = setting("layout", "wide"), setting("layout", "counts")
    return f", or {wide} where each annotator has a column, {counts} where each class has"


def is_remark(name: str) -> bool:
    """Whether a column's name says that it holds texts, remarks or times: Notes, created_at, lead-time."""
    plain = re.sub(r"[^a-z]+", "_", name.casefold()).strip("_")
    return plain in _REMARKS or plain.removesuffix("_at") in _REMARKS


@cache
def _known(role: str) -> frozenset[str]:
    return frozenset(" ".join(_NAMES[role]).split())


def _is_called(name: str, words: Collection[str], role: str) -> bool:
    full = _full(name)
    if role not in ("item", "annotator"):
        return full in words
    return any(form in words for form in (full, full.removesuffix("s"), re.sub(r"_?ids?$", "", full)))


def _full(name: str) -> str:
    """A column's name in lower case with underscores: "workerId" and "Worker ID" are worker_id."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^0-9a-z]+", "_", words.casefold()).strip("_")
