"""``dissensus annotators``: who answers without looking, and who sees something else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dissensus.cli.app import app, example
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
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a row for each annotator: .csv, .jsonl, .parquet."
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SHARE",
            help="Size of the credible intervals of the information, such as 0.9.",
        ),
    ] = KEPT,
    seed: Seed = 0,
    jobs: Jobs = ALL_CORES,
    safe_csv: SafeCsv = False,
    as_json: Json = False,
) -> None:
    """Tell spam, minority views and systematic errors from typical annotators, with the evidence."""
    columns, words = _verdicts(place, reading, interval, seed, jobs)
    if output is not None:
        from dissensus.models.results import make_frame
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


def _verdicts(
    place: Path, reading: Reading, interval: float, seed: int, jobs: int
) -> tuple[dict[str, Any], str]:
    """As a finished run keeps them, or from its draws, or from a fit to labels."""
    from dissensus.annotators.saved_verdicts import read_verdicts

    kept = read_verdicts(place) if interval == KEPT else None
    if kept is not None:
        return kept
    from dissensus.annotators.verdicts import RULES, annotator_verdicts
    from dissensus.params import check_rules
    from dissensus.workflow.runs import posterior_of

    check_rules("annotator_verdicts", RULES, seed=seed, n_jobs=jobs, interval=interval)  # before a long fit
    model, labels = posterior_of(place, reading.read, seed=seed, n_jobs=jobs)
    found = annotator_verdicts(labels, model, interval=interval)
    return found.columns(), found.in_words()


def _show(columns: dict[str, Any], words: str) -> None:
    verdicts = [str(verdict) for verdict in columns["verdict"]]
    order = ("typical", "minority view", "systematic error", "spam", "too few labels")
    say("; ".join(f"{verdicts.count(one):,} {one}" for one in order if one in verdicts))
    say(f"Views: {words}")
    rows = [
        [
            str(columns["annotator"][n]), verdicts[n], _chance(columns["probability"][n]),
            int(columns["n_labels"][n]), f"{columns['model_agreement'][n]:.0%}",
            bias_words(columns["bias_of"][n], columns["bias"][n], columns["bias_error"][n]),
            str(columns["evidence"][n]),
        ]
        for one in (*reversed(order[1:4]), order[0], order[4])
        for n in _most_biased(columns, [n for n, verdict in enumerate(verdicts) if verdict == one])[:SHOWN]
    ]  # fmt: skip
    title = f"Annotators (up to {SHOWN} of each verdict, the most biased first)"
    names = ["annotator", "verdict", "probability", "labels", "model agreement", "bias", "evidence"]
    show_table(title, names, rows)
    say("Model agreement: chance of the population's answer; bias: beside the others on the same items")


def _most_biased(columns: dict[str, Any], who: list[int]) -> list[int]:
    """Largest bias first, as far as it is beyond its error; those without one last."""
    beyond = {n: abs(columns["bias"][n]) - columns["bias_error"][n] for n in who}
    return sorted(who, key=lambda n: -beyond[n] if beyond[n] == beyond[n] else float("inf"))


def _chance(share: float) -> str:
    return "–" if share != share else f"{share:.0%}"


def bias_words(of: str, bias: float, error: float) -> str:
    """A bias with its 95 % interval: of the share of a class, or of grades."""
    if bias != bias:
        return "–"
    if not of:
        return f"{bias:+.2f}" + ("" if error != error else f" ± {error:.2f}")
    return f"{of} {bias:+.0%}" + ("" if error != error else f" ± {error:.0%}")
