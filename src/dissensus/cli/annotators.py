"""``dissensus annotators``: who answers without looking, and who sees something else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from dissensus.cli.app import app, example, option
from dissensus.cli.options import Json, LabelsOrRun, Reading, SafeCsv, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, Seed
from dissensus.cli.terminal import count, say, show_json, show_table

SHOWN, KEPT = 10, 0.9  # annotators of each kind in the table; size of the intervals that a run keeps


@app.command(epilog=example("dissensus annotators votes.csv", "dissensus annotators refined -o who.csv"))
@unbundled
def annotators(
    place: LabelsOrRun,
    reading: Reading,
    output: Annotated[
        Path | None,
        option("FILE", "Write a row for each annotator: .csv, .jsonl, .parquet.", "--output", "-o"),
    ] = None,
    interval: Annotated[
        float, option("SHARE", "Size of the credible intervals of the information, such as 0.9.")
    ] = KEPT,
    seed: Seed = 0,
    jobs: Jobs = ALL_CORES,
    safe_csv: SafeCsv = False,
    as_json: Json = False,
) -> None:
    """Tell spam, minority views and systematic errors from typical annotators, with the evidence."""
    from dissensus.annotators.saved_verdicts import read_verdicts

    # as a finished run keeps them, or from its draws, or from a fit to labels
    kept = read_verdicts(place) if interval == KEPT else None
    if kept is None:
        from dissensus.annotators.verdicts import RULES, annotator_verdicts
        from dissensus.params import check_rules
        from dissensus.workflow.runs import posterior_of

        # before a long fit
        check_rules("annotator_verdicts", RULES, seed=seed, n_jobs=jobs, interval=interval)
        model, labels = posterior_of(place, reading.read, seed=seed, n_jobs=jobs)
        found = annotator_verdicts(labels, model, interval=interval)
        kept = found.columns(), found.in_words()
    columns, words = kept
    if output is not None:
        from dissensus.labels.display import make_frame
        from dissensus.tables.results import for_spreadsheets
        from dissensus.tables.write import write_table

        with for_spreadsheets(safe_csv):
            write_table(make_frame(columns, "pyarrow"), output)
    if as_json:
        show_json(columns)
        return
    _show(columns, words)
    if output is not None:
        say(f"Wrote {output}: {count(len(columns['annotator']), 'annotator')}")


def _show(columns: dict[str, Any], words: str) -> None:
    verdicts = [str(verdict) for verdict in columns["verdict"]]
    order = ("typical", "minority view", "systematic error", "spam", "too few labels")
    say("; ".join(f"{verdicts.count(one):,} {one}" for one in order if one in verdicts))
    say(f"Views: {words}")
    # the largest bias first, as far as it is beyond its error; those without one last
    beyond = [abs(bias) - error for bias, error in zip(columns["bias"], columns["bias_error"], strict=True)]
    beyond = [float("-inf") if value != value else value for value in beyond]
    most_biased = sorted(range(len(verdicts)), key=lambda n: -beyond[n])
    rows = []
    for verdict in (*reversed(order[1:4]), order[0], order[4]):
        for n in [n for n in most_biased if verdicts[n] == verdict][:SHOWN]:
            probability = columns["probability"][n]
            chance = "–" if probability != probability else f"{probability:.0%}"
            agreement = f"{columns['model_agreement'][n]:.0%}"
            bias = bias_words(columns["bias_of"][n], columns["bias"][n], columns["bias_error"][n])
            who, evidence = str(columns["annotator"][n]), str(columns["evidence"][n])
            rows.append([who, verdict, chance, int(columns["n_labels"][n]), agreement, bias, evidence])
    title = f"Annotators (up to {SHOWN} of each verdict, the most biased first)"
    names = ["annotator", "verdict", "probability", "labels", "model agreement", "bias", "evidence"]
    show_table(title, names, rows)
    say("Model agreement: chance of the population's answer; bias: beside the others on the same items")


def bias_words(of: str, bias: float, error: float) -> str:
    """A bias with its 95 % interval: of the share of a class, or of grades."""
    if bias != bias:
        return "–"
    if not of:
        return f"{bias:+.2f}" + ("" if error != error else f" ± {error:.2f}")
    return f"{of} {bias:+.0%}" + ("" if error != error else f" ± {error:.0%}")
