"""``dissensus import`` and ``export``: any file of labels as a plain table or a store; refined labels out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import app, argument, examples, last_result, option
from dissensus.cli.terminal import amounts, count, note, say
from dissensus.errors import DataError, ParameterError

STORE = ".store"  # what the name of a store ends in


@app.command(
    "import",
    epilog=examples(
        "dissensus import project-1.json --question sentiment -o labels.csv",
        "dissensus import votes-1.csv votes-2.csv -o votes.store --memory 8GB",
    ),
)
def import_labels(
    files: Annotated[list[Path], argument("FILES", "Labels; several files or folders for a store.")],
    output: Annotated[Path, option("FILE", ".csv, .jsonl, .parquet (.gz) or NAME.store.", "--output", "-o")],
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    layout: Annotated[str | None, option("LAYOUT", "long, wide (annotators) or counts (classes).")] = None,
    format: Annotated[str | None, option("NAME", "Format, where the content does not tell it.")] = None,
    question: Annotated[str | None, option("NAME", "The question to read, of several.")] = None,
    text_column: Annotated[str | None, option("NAME", "Column of the items' text.")] = None,
    separator: Annotated[str | None, option("CHAR", "What separates classes in one answer.")] = None,
    duplicates: Annotated[str, option("WHICH", "Repeated labels: keep, first, last or error.")] = "keep",
    missing_words: Annotated[list[str], option("NA,…", "Words that mean that there is no label.")] = [],
    ignore_case: Annotated[bool, option(None, "Merge classes that differ in case.", "--ignore-case")] = False,
    keep_rejected: Annotated[bool, option(None, "Read rejected assignments too.", "--keep-rejected")] = False,
    encoding: Annotated[str | None, option("NAME", "Encoding, if it is not UTF-8.")] = None,
    items_to: Annotated[Path | None, option("FILE", "Table of the items to write, too.")] = None,
    memory: Annotated[str | None, option("SIZE", "Memory to keep to for a store, such as 8GB.")] = None,
    safe_csv: opt.SafeCsv = False,
) -> None:
    """Convert any file of labels to a table or a store."""
    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    more: dict[str, Any] = {
        "duplicates": duplicates,
        "format": format,
        "missing_words": opt.in_list(missing_words),
    }
    only_tables: dict[str, Any] = {
        "layout": layout,
        "question": question,
        "text_column": text_column,
        "separator": separator,
        "encoding": encoding,
        "ignore_case": ignore_case,
        "keep_rejected": keep_rejected,
    }
    if output.suffix == STORE:
        from dissensus.large.packing import write_store

        asked = [name for name, value in only_tables.items() if value] + ["items_to"] * (items_to is not None)
        if asked:
            raise ParameterError(
                f"--{asked[0].replace('_', '-')} is not for a store; write a table first, and a store of it"
            )
        with last_result():
            manifest = write_store(files, output, memory=memory, **columns.given(), **more)
        say(
            f"{count(manifest.n_labels, 'label')} by {count(manifest.n_annotators, 'annotator')} on "
            f"{count(manifest.n_items, 'item')}, {count(manifest.n_classes, 'class', 'classes')}"
        )
        say(f"Wrote {output}/: {manifest.n_bytes / 1e6:,.1f} MB")
        for remark in manifest.notes:
            note(remark)
        return
    if len(files) > 1:
        raise ParameterError(f"several files go into a store; name it, as in -o {output.stem}{STORE}")
    file = files[0]
    for path in (output, items_to):
        if path is not None and path.exists() and path.samefile(file):
            raise DataError(f"{path}: is the file being read; name another with -o or --items-to")
    labels = columns.read(file, **more, **only_tables)
    from dissensus.tables.results import for_spreadsheets, label_table
    from dissensus.tables.write import write_tables

    if items_to is not None and items_to.resolve() == output.resolve():
        raise DataError(f"{items_to}: is the table of labels too; name another file with --items-to")
    if items_to is not None and labels.item_table is None:
        raise DataError(f"{file}: says nothing about items; leave out --items-to")
    tables = {output: label_table(labels, with_items=items_to is None)}
    if items_to is not None:
        tables[items_to] = labels.item_table
    with for_spreadsheets(safe_csv), last_result():
        write_tables(tables)
    say(f"Wrote {output}: {amounts(labels)}")
    if items_to is not None:
        say(f"Wrote {items_to}: {count(labels.n_items, 'item')}")


@app.command(
    "export",
    epilog=examples(
        "dissensus export refined -o rows.csv --format weighted",
        "dissensus export refined -o tasks.json --format label-studio --items texts.csv",
    ),
)
def export_labels(
    run: Annotated[Path, argument("RUN", "A run's directory, or its model.safetensors.")],
    output: Annotated[Path, option("PATH", "File (or dataset directory) to write.", "--output", "-o")],
    format: Annotated[str | None, option("NAME", "csv, huggingface, label-studio, weighted, …")] = None,
    items: opt.ItemTable = None,
    question: Annotated[str, option("NAME", "Label Studio: the name of the control.")] = "label",
    to_name: Annotated[str, option("NAME", "Label Studio: the name of what is labelled.")] = "text",
    safe_csv: opt.SafeCsv = False,
) -> None:
    """Write refined labels for another tool."""
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.tables import open_table
    from dissensus.tables.write import write_labels
    from dissensus.workflow.runs import load_run

    fitted = load_run(run).model
    side = None if items is None else open_table(items).typed()
    with for_spreadsheets(safe_csv), last_result():
        write_labels(fitted, output, format, items=side, question=question, to_name=to_name)
    say(f"Wrote {output}: {count(len(fitted.items_), 'item')}")
