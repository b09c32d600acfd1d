"""The answers to the questions of the page: differences of models, with verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.runner import line, table
from reproduction import printed
from reproduction.cells import Numbers
from reproduction.columns import BY_PAIR, COLUMNS, CRITERIA, GUIDES, MODE_COLUMNS, PAPER_GUIDES, RAW, SEARCHES
from reproduction.derived import PRINTED_MEASURES, SNAPPING_KL
from reproduction.measures import CONSTANT, UNIFORM
from reproduction.results import Results
from reproduction.tables import verdict_of

VERDICTS = ("better", "tie", "worse")
UNDECIDED = "not decided (quick)"


def count_verdicts(rows: Sequence[Numbers]) -> str:
    """Count the verdicts of several comparisons."""
    verdicts = [verdict_of(row) for row in rows]
    better, tied, worse = (verdicts.count(verdict) for verdict in VERDICTS)
    return f"better in {better}, tied in {tied} and worse in {worse}"


def answer_summary(rows: Sequence[Numbers], *, decided: bool = True) -> str:
    """Count the verdicts of a question, with K × L chosen by the measure that is reported."""
    if not decided:
        return f"The verdict is {UNDECIDED}: such a run is too small for it."
    rows = [row for row in rows if not row["measure"].endswith(BY_PAIR) and row["measure"] != SNAPPING_KL]
    as_printed = [row for row in rows if row["measure"] in PRINTED_MEASURES]
    here = [row for row in rows if row["measure"] not in PRINTED_MEASURES]
    sentences = []
    if as_printed:
        sentences.append(
            f"Of {len(as_printed)} comparisons made as in the paper, the first model is "
            f"{count_verdicts(as_printed)}."
        )
    if here:
        which = "other comparisons" if as_printed else "comparisons here"
        sentences.append(f"Of {len(here)} {which}, the first model is {count_verdicts(here)}.")
    return " ".join(sentences)


def choice_summary(rows: Sequence[Numbers]) -> str:
    """Say by which choice of K × L the verdicts hold, and which verdicts depend on it."""
    keys = ("first", "second", "dataset")
    by_pair = {
        (row["measure"], *(row[key] for key in keys)): row for row in rows if row["measure"].endswith(BY_PAIR)
    }
    other = [by_pair.get((f"{row['measure']}, {BY_PAIR}", *(row[key] for key in keys))) for row in rows]
    both = [(row, second) for row, second in zip(rows, other, strict=True) if second is not None]
    changed = [(row, second) for row, second in both if verdict_of(row) != verdict_of(second)]
    words = [
        f"{row['first']} less {row['second']} on {row['dataset']}, {row['measure']}, {verdict_of(row)} or "
        f"{verdict_of(second)}"
        for row, second in changed
    ]
    listed = f": {'; '.join(words)}." if words else "."
    return (
        f"These verdicts hold with K × L chosen by the measure that is reported. {len(both)} of the "
        f"comparisons were repeated with {BY_PAIR}. With the reported measure, the first model is "
        f"{count_verdicts([row for row, _ in both])}; with the other choice, it is "
        f"{count_verdicts([second for _, second in both])}. The verdict depends on the choice in "
        f"{len(changed)} of {len(both)}{listed}"
    )


def answer_table(rows: Sequence[Numbers], *, decided: bool = True) -> str:
    """Tabulate the differences of a question: one line per pair and measure, one column per dataset."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    pairs: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        verdict = verdict_of(row) if decided else UNDECIDED
        cell = f"{row['value']:+.3f} ({row['low']:+.3f}, {row['high']:+.3f}) {verdict}"
        pairs.setdefault((row["measure"], row["first"], row["second"]), {})[row["dataset"]] = cell
    lines = [line(*pair, *(cells.get(name, "") for name in datasets)) for pair, cells in pairs.items()]
    return table(("measure", "first", "second", *datasets), lines)


def sizes_table(results: Results) -> str:
    """Tabulate the K × L chosen by each criterion; empty if nothing was searched."""
    names, lines = list(results.derived["parts"]), []
    for key, (guide, criterion) in SEARCHES.items():
        searched = [results.has(name, f"{key}-search") for name in names]
        if any(searched):
            chosen = [
                " × ".join(map(str, results.numbers(name, f"{key}-search")["chosen"].values())) if has else ""
                for name, has in zip(names, searched, strict=True)
            ]
            lines.append(line(GUIDES[guide].title, CRITERIA[criterion][0], *chosen))
    return table(("model", "chosen by", *names), lines) if lines else ""


def pd_summary(results: Results) -> str:
    """Compare the printed figures with two predictions that do not depend on the item, and name a reason."""
    names = [name for name in results.datasets_with("table3") if name in printed.PAPER_SETS]

    def figures(values: Iterable[float]) -> str:
        return " / ".join(f"{value:.3f}" for value in values)

    def ours(key: str) -> str:
        return figures(results.column(name, key, "kl").mean for name in names)

    constant, uniform = (
        [results.numbers(name, "describe")[row]["kl"] for name in names] for row in (CONSTANT, UNIFORM)
    )
    pd, fmm = ([printed.KL[key][name].value for name in names] for key in ("pd", "fmm"))
    n_worse = sum(value > reference for value, reference in zip(pd, uniform, strict=True))
    largest = max((abs(f - c) for f, c in zip(fmm, constant, strict=True)), default=0.0)
    lower = [
        results.column(name, "pd", "kl").mean < results.column(name, key, "kl").mean
        for name in names
        for key in PAPER_GUIDES
    ]
    before_after = [f"{COLUMNS[key].title} {ours(f'{key}_{RAW}')} and {ours(key)}" for key in PAPER_GUIDES]
    sentences = [
        f"The KL of PD on {', '.join(names)} is {ours('pd')} here and {figures(pd)} as printed.",
        f"Ours is below {sum(lower)} of our {len(lower)} figures of FMM and PGM.",
        f"A uniform prediction has {figures(uniform)}: the printed PD is worse on {n_worse} of {len(names)}.",
        f"The printed FMM ({figures(fmm)}) differs by at most {largest:.3f} from the constant that predicts",
        f"the mean training distribution ({figures(constant)}).",
        "A guided column replaces each prediction of its CNN by one of a few cluster distributions. The KL",
        f"before and after this step is: {'; '.join(before_after)}.",
        f"Softmax regression on the embeddings, without a guide, has {ours('softmax')}.",
    ]
    return " ".join(sentences) if names else ""


def modes_table(results: Results) -> str:
    """Tabulate the KL of hard and soft refinement and projection."""
    names = results.datasets_with("table3")
    lines = [
        line(column.title, *(results.column(name, key, "kl") for name in names))
        for key, column in MODE_COLUMNS.items()
    ]
    return table(("test KL", *names), lines)
