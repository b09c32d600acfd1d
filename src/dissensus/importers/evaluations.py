"""Logs of evaluation tools: judgements of samples by scorers, metrics, evaluators and people.

A tool is a specification (:class:`Log`) of the fields of its records. These are Inspect, promptfoo, DeepEval,
lm-evaluation-harness, LangSmith, Langfuse, Phoenix, Braintrust and MLflow; docs/importing.md cites their
documentation.

A metric is a question. Its annotator is the metric, with the model that judged if the log names it, or a
person. In an Inspect log all scorers answer one question, unless a scorer gives several values.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus.importers.doccano import read_archive
from dissensus.importers.flat import at_member, json_or_table, split_records
from dissensus.importers.gather import Gatherer, NotALabelError, Record, as_id, as_text
from dissensus.tables.json_lines import first_object, records
from dissensus.tables.source import first_bytes, open_source

_HUMAN_KINDS = ("HUMAN", "ANNOTATION", "app")


@dataclass(frozen=True)
class Log:
    """Fields of the records of a tool, and of the judgements in a record.

    A field is a path such as ``response.output``, or a column of that name; several are alternatives, the
    first that is not blank. ``lists`` are the lists of records in a file that is one object. ``scores`` is
    the path of the judgements, an object by metric or a list, or a function that returns them.
    """

    item: str
    input: str = ""  # text of an item, to which the output is joined
    output: str = ""  # also a column of the item table
    variant: str = ""  # output or step of a sample, if it has several
    lists: str = ""
    scores: str | Callable[[Record], Any] = "scores"
    question: str = ""  # name of the only question
    name: str = "name"
    rubric: str = ""  # of judgements without the first of the names
    label: str = "value"
    model: str = ""
    kind: str = ""  # of the annotator
    person: str = ""

    def read(self, path: Path, gather: Gatherer) -> None:
        """Read the judgements of one question."""
        key, requested = gather.item_column, gather.requested or ""
        pattern = re.compile(".*".join(map(re.escape, requested.split("*"))))
        ids = [key, f"vars.{key}", f"metadata.{key}"] if key else self.item.split()
        gather.set_columns(item=ids[0], annotator="judge")
        for location, record in _records(path, self.lists.split()):
            if record.get("is_root") is False:  # a step of a sample
                continue
            identifier, variant = as_id(_first(record, ids)), as_id(_first(record, self.variant.split()))
            if identifier is None:
                raise gather.error(location, f"has no {ids[0]}; export it again with its samples")
            identifier += f" {variant}" if variant not in (None, "0") else ""
            texts = {name: _contents(_at(record, name)) for name in f"{self.input} {self.output}".split()}
            joined = list(filter(None, texts.values()))
            output = as_text([texts[name] for name in self.output.split()])
            columns = {"output": output} if output else {}
            item = gather.item(location, identifier, {"text": joined, **texts} if joined else {}, **columns)
            judgements = gather.parsed(location, self._judgements, record)
            if not judgements:
                gather.skip(f"samples {'with an error' if record.get('error') else 'without a score'}")
            for question, judge, label in judgements:
                if requested == judge or pattern.fullmatch(question):
                    question = requested
                gather.answer(location, item, question, judge, label)

    def _judgements(self, record: Record) -> list[tuple[str, str, Any]]:
        """Return question, annotator and label of every judgement in a record."""
        judgements, n_uses, keys = [], Counter[tuple[Any, ...]](), defaultdict[str, list[Any]](list)
        for entry in _entries(self.scores(record) if callable(self.scores) else _at(record, self.scores)):
            fields = (self.name, self.label, self.model, self.person)
            name, label, model, person = (_first(entry, names.split()) for names in fields)
            name, model = as_id(name) or "score", as_id(model)
            model = None if model in ("default", "none", name) else model
            if not self.kind:  # without annotators, a second "contains" of a model is another metric
                rubric = as_id(_at(entry, self.rubric)) if _at(entry, self.name.split()[0]) is None else None
                n_uses[name, rubric, model] += 1
                key = rubric, n_uses[name, rubric, model]
                if key not in keys[name]:
                    keys[name].append(key)
                number = keys[name].index(key) + 1
                name += f" {number}" if number > 1 else ""
            judge = f"{name} ({model})" if model else name
            if self.kind and _at(entry, self.kind) in _HUMAN_KINDS:
                judge = as_id(person) or "human"
            label = None if entry.get("error") else label
            if isinstance(label, bool) and self.label in ("pass", "success"):
                label = "pass" if label else "fail"
            labels = label if isinstance(label, Mapping) else {self.question or name: label}
            judgements += [(question, judge, part) for question, part in labels.items()]
        return judgements


def _records(path: Path, lists: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """Yield the records of an archive, of the lists of an object, of an array, JSON lines or a table."""
    if zipfile.is_zipfile(path):
        for entry, member in read_archive(path, is_sample):
            yield from ((f"({entry})", record) for _, record in records(member))
        return
    head = first_object(first_bytes(path))
    members = [names for names in (name.split(".") for name in lists) if names[0] in head]
    if {"columns", "data"} <= head.keys():  # a table without ids
        for number, (location, row) in enumerate(split_records(path), start=1):
            yield location, {"request_id": number, **row}
    elif members:
        streams = (stream for names in members for stream in at_member(open_source(path), *names))
        for number, value in enumerate((value for stream in streams for value in stream.elements()), start=1):
            yield f"record {number}", value if isinstance(value, dict) else {}
    else:
        yield from json_or_table(path)


def _at(record: Record, path: str) -> Any:
    """Return the value of a column, at a path of keys, or of the columns whose names begin with the path."""
    value: Any = record
    for key in [path] if path in record else path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value:
        return value
    start = f"{path}."
    return {name.removeprefix(start): record[name] for name in record if name.startswith(start)} or value


def _first(record: Record, fields: Sequence[str]) -> Any:
    """Return the first field that is not blank."""
    values = (_at(record, field) for field in fields)
    filled = (value for value in values if as_id(value) is not None or isinstance(value, dict | list))
    return next(filled, None)


def _entries(scores: Any) -> list[Mapping[str, Any]]:
    """Return judgements as objects."""
    if isinstance(scores, dict):
        objects = [score if isinstance(score, dict) else {"value": score} for score in scores.values()]
        scores = [{"name": name} | score for name, score in zip(scores, objects, strict=True)]
    if scores and not (isinstance(scores, list) and all(isinstance(entry, dict) for entry in scores)):
        raise NotALabelError("is not an object or a list of objects")
    return scores or []


def _contents(value: Any) -> Any:
    """Return the text of a chat without its roles and types; any other value unchanged."""
    if isinstance(value, list):
        return [_contents(part) for part in value]
    if isinstance(value, Mapping):
        return next((_contents(value[key]) for key in ("content", "text") if key in value), value)
    return value


def is_sample(name: str) -> bool:
    """Return True for the file of a sample in an Inspect log (.eval)."""
    return re.fullmatch(r"samples/.+_epoch_\d+\.json", name) is not None


def _lm_eval_scores(sample: Record) -> list[Record]:
    """Return the metrics of a sample, which are its numbers; a filter of the answer is a judge."""
    metrics = [name for name in sample if isinstance(sample[name], int | float) and name != "doc_id"]
    return [{"name": name, "value": sample[name], "filter": sample.get("filter")} for name in metrics]


def _mlflow_scores(row: Record) -> Any:
    """Return the feedback of a trace (expectations are no judgements), or the scores of a row of results."""
    assessments = _at(row, "info.assessments") or row.get("assessments")
    if not isinstance(assessments, list):
        matches = [re.fullmatch(r"(.+?)(?:/v\d+)?/(?:value|score)", name) for name in row]
        return {match[1]: row[match[0]] for match in matches if match}
    return [part for part in _entries(assessments) if part.get("feedback") and part.get("valid") is not False]


def is_mlflow(record: Record) -> bool:
    """Return True for a trace, a row of traces or results, or a table of results."""
    keys = {re.sub(r".+/", "*/", name) for name in record}
    pairs = ("info data", "columns data", "trace_id assessments", "trace_id */value", "request_id */value")
    return any(set(pair.split()) <= keys for pair in pairs)


# fmt: off
INSPECT = Log(item="id", input="input", output="output.completion", lists="samples", question="score")
PROMPTFOO = Log(item="testIdx", variant="promptIdx", input="prompt.raw", output="response.output",
                label="pass", lists="results.results", scores="gradingResult.componentResults",
                name="assertion.metric assertion.type", rubric="assertion.value",
                model="assertion.provider.id assertion.provider")
DEEPEVAL = Log(item="name", input="input scenario", output="actualOutput", scores="metricsData",
               label="success", model="evaluationModel", lists="testCases conversationalTestCases "
                     "testRunData.testCases testRunData.conversationalTestCases")
LM_EVAL = Log(item="doc_id", input="arguments.gen_args_0.arg_0", output="filtered_resps",
              scores=_lm_eval_scores, model="filter")
LANGSMITH = Log(item="example_id run_id trace_id id", input="inputs", output="outputs", name="key name",
                scores=lambda record: [record] if "key" in record else _at(record, "feedback"),
                label="value score", kind="feedback_source.type",
                person="feedback_source.user_name feedback_source.user_id")
LANGFUSE = Log(item="traceId trace_id sessionId session_id", variant="observationId observation_id",
               lists="data", scores=lambda record: [record], label="stringValue string_value value",
               model="configId config_id author source", kind="source", person="authorUserId author_user_id")
PHOENIX = Log(item="span_id trace_id session_id", lists="data", scores=lambda record: [record],
              name="name annotation_name", label="result.label result.score", kind="annotator_kind",
              model="metadata.model identifier", person="user_id identifier")
BRAINTRUST = Log(item="id", input="input", output="output", lists="events data")
MLFLOW = Log(item="info.trace_id info.request_id trace_id request_id", scores=_mlflow_scores,
             input="info.request_preview request inputs", output="info.response_preview response outputs",
             name="assessment_name name", label="feedback.value value", model="source.source_id",
             kind="source.source_type", person="source.source_id")
# fmt: on
