"""Column roles (item, annotator, label, gold, text), found by the column's name or chosen by the user."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dissensus.errors import DataError, did_you_mean, nearest, setting
from dissensus.labels.features import TEXT_NAMES
from dissensus.labels.vocabulary import quoted

# Usual names of each column, most certain first. Case, white space and hyphens do not matter ("Worker ID" is
# worker_id), and a word also stands for its ids and plural (task for task_id, annotator for annotators).
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
_USUAL_NAMES = {role: frozenset(" ".join(names).split()) for role, names in _NAMES.items()}
# Names of items only if there is no id column: with one, they hold the content of the item.
_CONTENT_NAMES = ("question", "unit", "sample", "object", "category", "prompt")
_CROWD_KIT_NAMES = {"item": "task", "annotator": "worker"}  # read without a note, like the roles' names
_OPTIONS = {"gold": "label", "text": "text_column"}  # settings not named after their role

# Usual names of columns that describe an item.
_ITEM_SIDE = frozenset({*TEXT_NAMES, "split", "url", "lang", "language"})
# Words in the names of labels that no single annotator gave: majority vote, final_label, "Ground truth".
_SUMMARY_WORDS = {
    "gold", "truth", "true", "reference", "correct", "majority", "final", "consensus", "adjudicated",
    "adjudication", "aggregate", "aggregated", "agreed",
}  # fmt: skip

# Usual names of annotators' remarks, and of times.
_REMARK_NAMES = {
    "comments", "note", "notes", "remark", "remarks", "feedback", "explanation", "reason", "reasons",
    "rationale", "justification", "time", "date", "timestamp", "datetime", "duration", "seconds", "created",
    "updated", "started", "submitted", "completed", "lead_time", *TEXT_NAMES,
}  # fmt: skip

_MAX_NAMES_LISTED = 12
_MAX_NAMES_COMPARED = 200  # column names searched for a likely typing error
_MAX_NAME_LENGTH = 40  # characters of a name in a message


def find_column(
    columns: Sequence[str], role: str, name: str | None, source: str, taken: Collection[str] = ()
) -> str:
    """Return the column of a role: the one called ``name``, or the one not ``taken`` with a usual name."""
    if name is not None:
        alike = [column for column in columns if column.strip().casefold() == name.strip().casefold()]
        if name in columns or len(alike) == 1:
            return name if name in columns else alike[0]
        hint = did_you_mean(name, columns[:_MAX_NAMES_COMPARED])
        raise DataError(f"{source}: there is no column {quoted(name)}; {hint}it has {listed(columns)}")
    free = [column for column in columns if column not in taken]
    if role == "item" and sum(_snake_case(column) in ("id", "idx") for column in free) == 1:
        free = [column for column in free if _snake_case(column) not in _CONTENT_NAMES]
    for names in _NAMES[role]:
        matches = [column for column in free if _is_called(column, names.split(), role)]
        matches = [column for column in matches if _snake_case(column).endswith("id")] or matches
        if len(matches) == 1:
            return matches[0]
        if matches:
            problem = f"{' and '.join(map(quoted, matches))} could each be the {role} column"
            raise DataError(f"{source}: {problem}; choose one with {setting(_OPTIONS.get(role, role))}")
    raise _not_found(free, columns, role, source)


def called(columns: Sequence[str], role: str) -> list[str]:
    """Return the columns with a usual name of a role."""
    return [name for name in columns if _is_called(name, _USUAL_NAMES[role], role)]


def only_column_left(columns: Sequence[str], annotator: Any, label: Any) -> str | None:
    """Return the only column besides those of annotators and labels, as the column of items.

    None if either of these is unknown, if several columns are left, or if the name of the only one says that
    it is something else.
    """
    roles = (("annotator", annotator), ("label", label))
    named = [called(columns, role) if column is None else [column] for role, column in roles]
    rest = [name for name in columns if name.strip() and not any(name in names for names in named)]
    if [len(names) for names in (*named, rest)] != [1, 1, 1]:
        return None
    return None if any(has_column(rest, role) for role in ("annotator", "label", "gold")) else rest[0]


def guess_note(columns: Mapping[str, str], chosen: Collection[str]) -> str:
    """Return a note on the column guessed for each role; empty if all have unmistakable names.

    ``chosen`` are the roles whose column the user named.
    """
    plain = {role: _snake_case(name).removesuffix("s") for role, name in columns.items()}
    if all(role in chosen or plain[role] in (role, _CROWD_KIT_NAMES.get(role)) for role in columns):
        return ""
    read = ", ".join(f"{role} from {quoted(name)}" for role, name in columns.items())
    roles = [role for role in columns if role != "text"]
    note = f"read {read}; if that is wrong, name the column with {', '.join(map(setting, roles))}"
    return f"{note}; for the text, use {setting('text_column')}" if "text" in columns else note


def refuse_several_missing(columns: Sequence[str], options: Any, source: str) -> None:
    """Raise one error if two or all three of the columns cannot be found."""
    roles = [role for role in ("item", "annotator", "label") if getattr(options, role) is None]
    missing = [role for role in roles if not has_column(columns, role)]
    if len(missing) > 1:
        settings = ", ".join(map(setting, missing))
        no_table = "; if it is not a table, give one with one row per label" if len(missing) == 3 else ""
        raise DataError(
            f"{source}: no {', no '.join(missing[:-1])} and no {missing[-1]} column found; "
            f"name them with {settings}{_other_layouts()}; it has {listed(columns)}{no_table}"
        )


def has_column(columns: Sequence[str], role: str) -> bool:
    """Return True if some column has a usual name of this role."""
    return bool(called(columns, role))


def is_id(name: str) -> bool:
    """Return True if a column's name says that it holds ids: review_id, "Photo ID"."""
    return _snake_case(name).split("_")[-1] == "id"


def refuse_duplicate_names(columns: Sequence[str], source: str) -> None:
    """Raise an error if two columns have the same name."""
    duplicate = first_repeat(name.strip() for name in columns if name.strip())
    if duplicate is not None:
        raise DataError(f"{source}: the column {quoted(duplicate)} occurs twice; rename or remove one")


def listed(names: Iterable[Any]) -> str:
    """Join names for a message: on one line, limited in number and length."""
    texts = [" ".join(str(name).split())[:_MAX_NAME_LENGTH] or "(no name)" for name in names]
    more = f", … ({len(texts)} in all)" if len(texts) > _MAX_NAMES_LISTED else ""
    return ", ".join(texts[:_MAX_NAMES_LISTED]) + more or "none"


def first_repeat(names: Iterable[str]) -> str | None:
    """Return the first name that occurred before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _not_found(free: Sequence[str], columns: Sequence[str], role: str, source: str) -> DataError:
    """Return the error for a role without a column, with the column most likely meant."""
    others = [other for other in ("item", "annotator", "label") if other != role]
    candidates = [name for name in free if not any(has_column([name], other) for other in others)]
    likely = [name for name in candidates[:_MAX_NAMES_COMPARED] if not is_remark(name)]
    near = next((name for name in likely if nearest(_snake_case(name), _USUAL_NAMES[role], 0.75)), None)
    hint = f"did you mean {quoted(near)}? Name" if near is not None else "name"
    is_long = len(candidates) < 2 or (has_column(columns, "label") and has_column(columns, "annotator"))
    return DataError(
        f"{source}: no {role} column found; {hint} it with {setting(_OPTIONS.get(role, role), near)}"
        f"{'' if is_long else _other_layouts()}; it has {listed(columns)}"
    )


def _other_layouts() -> str:
    wide, counts = setting("layout", "wide"), setting("layout", "counts")
    return f", or use {wide} if each annotator has a column, {counts} if each class has one"


def describes_item(name: str, role: str) -> bool:
    """Return True if a column of a wide table is by its name none of an annotator or a class (``role``)."""
    is_summary = role == "annotator" and not _SUMMARY_WORDS.isdisjoint(_snake_case(name).split("_"))
    return is_summary or name.strip().casefold() in _ITEM_SIDE or is_remark(name)


def is_remark(name: str) -> bool:
    """Return True if a column's name says that it holds texts, remarks or times: Notes, created_at."""
    plain = re.sub(r"[^a-z]+", "_", name.casefold()).strip("_")
    return plain in _REMARK_NAMES or plain.removesuffix("_at") in _REMARK_NAMES


def _is_called(name: str, words: Collection[str], role: str) -> bool:
    """Return True if a column has one of these names, for items and annotators also as plural or id.

    Pandas names a second column ``label`` of a table ``label.1``.
    """
    full = _snake_case(re.sub(r"\.\d+$", "", name))
    if role not in ("item", "annotator"):
        return full in words
    return any(form in words for form in (full, full.removesuffix("s"), re.sub(r"_?ids?$", "", full)))


def _snake_case(name: str) -> str:
    """Return a column's name in lower case with underscores: "workerId" and "Worker ID" are worker_id."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\W_]+", "_", words.casefold()).strip("_")
