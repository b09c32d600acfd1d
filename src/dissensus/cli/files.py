"""``dissensus import`` and ``export``: convert files of labels, and write refined labels for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import argument, last_result, option
from dissensus.cli.terminal import amounts, count, note, say
from dissensus.errors import DataError, ParameterError

STORE_SUFFIX = ".store"


@opt.command(
    "dissensus import project-1.json --question sentiment -o labels.csv",
    "dissensus import votes-1.csv votes-2.csv -o votes.store --memory 8GB",
    name="import",
)
def import_labels(
    files: Annotated[list[Path], argument("FILES", "Labels; for a store, also several files or folders.")],
    output: Annotated[Path, option("FILE", ".csv, .jsonl, .parquet (also .gz) or .store.", "--output", "-o")],
    columns: opt.Columns,
    layout: Annotated[str | None, option("LAYOUT", "Table layout: long, wide or counts.")] = None,
    format: Annotated[str | None, option("NAME", "File format, if it is not detected.")] = None,
    question: Annotated[str | None, option("NAME", "Question to read, if the file has several.")] = None,
    text_column: opt.TextColumn = None,
    separator: Annotated[str | None, option("CHAR", "Separator of classes within an answer.")] = None,
    duplicates: Annotated[str, option("RULE", "Repeated labels: keep, first, last or error.")] = "keep",
    missing_words: Annotated[list[str], option("NA,…", "Words that stand for a missing label.")] = [],
    ignore_case: Annotated[bool, option(None, "Ignore the case of classes.", "--ignore-case")] = False,
    keep_rejected: Annotated[
        bool, option(None, "Keep answers that were marked as rejected in the tool.", "--keep-rejected")
    ] = False,
    encoding: Annotated[str | None, option("NAME", "Text encoding, if it is not UTF-8.")] = None,
    sheet: Annotated[str | None, option("NAME", "Sheet of an Excel workbook.")] = None,
    items_to: Annotated[Path | None, option("FILE", "Also write a table of the items.")] = None,
    memory: Annotated[str | None, option("SIZE", "Memory limit for building a store.")] = None,
    safe_csv: opt.SafeCsv = False,
) -> None:
    """Convert a file of labels to a table, or to a store (a directory, for labels that exceed memory)."""
    missing = opt.split_list(missing_words)
    more: dict[str, Any] = {"duplicates": duplicates, "format": format, "missing_words": missing}
    table_settings: dict[str, Any] = {"layout": layout, "question": question, "text_column": text_column}
    table_settings |= {"separator": separator, "encoding": encoding, "sheet": sheet}
    table_settings |= {"ignore_case": ignore_case, "keep_rejected": keep_rejected}
    if output.suffix == STORE_SUFFIX:
        from dissensus.large.packing import write_store

        for name, value in {**table_settings, "items_to": items_to}.items():
            if value:
                remedy = "import the file into a table first, then the table into a store"
                raise ParameterError(f"--{name.replace('_', '-')} does not work with a store; {remedy}")
        with last_result():
            manifest = write_store(files, output, memory=memory, **columns.settings(), **more)
        items, classes = count(manifest.n_items, "item"), count(manifest.n_classes, "class", "classes")
        by = f"{count(manifest.n_labels, 'label')} by {count(manifest.n_annotators, 'annotator')}"
        say(f"{by} on {items}, {classes}")
        say(f"Wrote {output}/: {manifest.n_bytes / 1e6:,.1f} MB")
        note(*manifest.notes)
        return
    if len(files) > 1:
        raise ParameterError(f"several files need a store as output: -o {output.stem}{STORE_SUFFIX}")
    file = files[0]
    for path in (output, items_to):
        if path is not None and path.exists() and path.samefile(file):
            option = "--items-to" if path == items_to else "-o"
            raise DataError(f"{path}: this is the input file; choose another file with {option}")
    labels = columns.read(file, **more, **table_settings)
    from dissensus.tables.results import label_table
    from dissensus.tables.write import write_tables

    tables = {output: label_table(labels, with_items=items_to is None)}
    if items_to is not None:
        if items_to.resolve() == output.resolve():
            raise DataError(f"{items_to}: --output is the same file; choose another with --items-to")
        if labels.item_table is None:
            raise DataError(f"{file}: has no columns about items; leave out --items-to")
        tables[items_to] = labels.item_table
    with last_result(safe_csv):
        write_tables(tables)
    say(f"Wrote {output}: {amounts(labels)}")
    if items_to is not None:
        say(f"Wrote {items_to}: {count(labels.n_items, 'item')}")


@opt.command(
    "dissensus export refined -o rows.csv --format weighted",
    "dissensus export refined -o tasks.json --format label-studio --items texts.csv",
    name="export",
)
def export_labels(
    run: Annotated[Path, argument("RUN", "Directory of a finished run, or its model.safetensors.")],
    output: Annotated[Path, option("PATH", "File (or dataset directory) to write.", "--output", "-o")],
    format: Annotated[str | None, option("NAME", "Format of the file (see above).")] = None,
    items: opt.ItemTable = None,
    question: Annotated[str, option("NAME", "Label Studio: name of the control tag.")] = "label",
    to_name: Annotated[str, option("NAME", "Label Studio: name of the object tag.")] = "text",
    safe_csv: opt.SafeCsv = False,
) -> None:
    """Write refined labels in the format of another tool.

    Formats: csv, jsonl, parquet, huggingface and label-studio have one row or task for each item; weighted
    has one row for each item and class, with the share of the class as its weight, to train classifiers.
    """
    from dissensus.tables.tables import open_table
    from dissensus.tables.write import write_labels
    from dissensus.workflow.runs import load_run

    fitted = load_run(run).model
    item_table = None if items is None else open_table(items).typed()
    with last_result(safe_csv):
        write_labels(fitted, output, format, items=item_table, question=question, to_name=to_name)
    say(f"Wrote {output}: {count(len(fitted.items_), 'item')}")
