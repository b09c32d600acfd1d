"""Recount every sentence of a page from the raw labels, item by item.

Nothing is shared with the code that writes the sentences except their text, kind and subject.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise, permutations
from statistics import median
from typing import Any

import numpy as np

from dissensus.annotators.sentences import Sentence

SHARE = r"(under 1 %|over 99 %|\d+ %)"
NAME = r"‘(.*?)’"
NUMBER = r"([\d,]+)"

Answer = np.ndarray  # (classes,): shares of an annotator's labels of an item


def sentences_in(content: Any) -> Iterator[Sentence]:
    """Yield every sentence anywhere in a page's content."""
    if isinstance(content, Sentence):
        yield content
    elif isinstance(content, dict | list | tuple | np.ndarray):
        for value in content.values() if isinstance(content, dict) else content:
            yield from sentences_in(value)


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def most(votes: Answer) -> int | None:
    """Return the class with the most votes; None for ties, and without votes."""
    best = np.flatnonzero(votes > max(votes.max() - 1e-9, 0))
    return int(best[0]) if len(best) == 1 else None


class Checker:
    """Raw labels as (item, annotator, class) codes, and the names of the classes and annotators."""

    def __init__(self, labels: Any) -> None:
        self.names = [str(name) for name in labels.classes]
        self.people = set(range(labels.n_annotators))
        self.gold = None if labels.gold is None else labels.gold.tolist()
        self.columns = labels.annotator_table
        self.ordinal = labels.label_type == "ordinal"
        columns = labels.item, labels.annotator, labels.label
        self.rows = list(zip(*(column.tolist() for column in columns), strict=True))
        P = len(self.names)
        self.counts: dict[int, Counter[int]] = defaultdict(Counter)
        # item, annotator: labels, then shares of the labels
        self.answers: dict[int, dict[int, Answer]] = defaultdict(lambda: defaultdict(lambda: np.zeros(P)))
        for m, n, p in self.rows:
            self.counts[m][p] += 1
            self.answers[m][n][p] += 1
        for answers in self.answers.values():
            for answer in answers.values():
                answer /= answer.sum()
        self.by_item: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for row in self.rows:
            self.by_item[row[0]].append(row)
        if self.ordinal:
            self.values = np.array(
                [float(name) for name in self.names]
                if all(name.replace(".", "", 1).isdigit() for name in self.names)
                else range(len(self.names))
            )
        self.load = Counter(n for _, n, _ in self.rows)
        self.standings = self._standings()
        shared = [row for row in self.standings.values() if row["n"]]
        self.usual = median(row["agreement"] for row in shared) if shared else math.nan
        self.usual_excess = median(row["agreement"] - row["chance"] for row in shared) if shared else math.nan

    # ---- plain statistics ----

    def _standings(self) -> dict[int, dict[str, Any]]:
        """Return the agreement of every annotator with the others on shared items."""
        standings: dict[int, dict[str, Any]] = {n: {"n": 0} for n in self.people}
        pairs: dict[int, list[tuple[Answer, Answer]]] = defaultdict(list)
        for answers in self.answers.values():
            total, r = sum(answers.values()), len(answers) - 1
            for n, answer in answers.items() if r else ():
                pairs[n].append((answer, (total - answer) / r))
        for code, rows in pairs.items():
            n, mine, theirs = len(rows), *(np.array(side) for side in zip(*rows, strict=True))
            matches = (mine * theirs).sum(axis=1)
            terms = ((mine - mine.mean(axis=0)) * (theirs - theirs.mean(axis=0))).sum(axis=1)
            errors = [math.sqrt(((x - x.mean()) ** 2).sum() / max(n - 1, 1) / n) for x in (matches, terms)]
            chance = mine.mean(axis=0) @ theirs.mean(axis=0)
            standings[code] = {"n": n, "agreement": matches.mean(), "chance": chance}
            standings[code] |= {"error": errors[0], "excess_error": errors[1]}
        for answers in self.answers.values():
            for code in answers if len(answers) > 2 else ():
                others = [answer for n, answer in answers.items() if n != code]
                pairs_ = [float(a @ b) for a, b in combinations(others, 2)]
                agreed = float(answers[code] @ np.mean(others, axis=0))
                standings[code].setdefault("rows", []).append((agreed, sum(pairs_) / len(pairs_)))
        for row in standings.values():
            usual = np.array(row.pop("rows", [])).reshape(-1, 2)
            row["n_usual"] = n = len(usual)
            if n:
                gaps = usual[:, 0] - usual[:, 1]
                error = math.sqrt(((gaps - gaps.mean()) ** 2).sum() / max(n - 1, 1) / n)
                row |= {"usual": usual[:, 1].mean(), "gap": gaps.mean(), "gap_error": error}
        return standings

    def pairs(self, side: set[int], other: set[int]) -> float:
        """Return the mean agreement of pairs of annotators, one of each side."""
        agreed = total = 0.0
        for answers in self.answers.values():
            for a, b in combinations(answers, 2):
                times = ((a in side) and (b in other)) + ((b in side) and (a in other))
                if times:
                    agreed += times * float(answers[a] @ answers[b])
                    total += times
        return agreed / total

    def votes(self, m: int, side: set[int]) -> Answer:
        votes = [answer for n, answer in self.answers[m].items() if n in side]
        return sum(votes, np.zeros(len(self.names)))

    def labels_of(self, items: Iterable[int]) -> Counter[int]:
        return sum((self.counts[int(m)] for m in items), Counter())

    def top(self, m: int) -> float:
        return max(self.counts[m].values(), default=0) / max(self.counts[m].total(), 1)

    def alpha(self) -> float:
        together: dict[tuple[int, int], float] = defaultdict(float)
        for counts in self.counts.values():
            n = counts.total()
            for (c, i), (k, j) in ((a, b) for a in counts.items() for b in counts.items() if n > 1):
                together[c, k] += i * (j - (c == k)) / (n - 1)
        totals = [sum(value for (c, _), value in together.items() if c == p) for p in range(len(self.names))]

        def far(c: int, k: int) -> float:
            if not self.ordinal:
                return float(c != k)
            return (sum(totals[min(c, k) : max(c, k) + 1]) - (totals[c] + totals[k]) / 2) ** 2

        n = sum(totals)
        observed = sum(value * far(c, k) for (c, k), value in together.items()) / n
        expected = sum(a * b * far(c, k) for c, a in enumerate(totals) for k, b in enumerate(totals))
        return 1 - observed * n * (n - 1) / expected

    # ---- sentences ----

    def share(self, text: str, value: float) -> None:
        """Check a percentage in a sentence."""
        if text.startswith("under"):
            assert 0 < value < 0.01
        elif text.startswith("over"):
            assert 0.99 < value < 1
        else:
            assert abs(float(text[:-2]) / 100 - value) <= 0.005 + 1e-9, (text, value)

    def parsed(self, pattern: str, text: str | None = None) -> Sequence[str]:
        """Return the groups of a pattern that the sentence, or a part of it, must match."""
        match = re.fullmatch(pattern, self.text if text is None else text)
        assert match, self.text
        return match.groups()

    def check(self, sentence: Sentence) -> None:
        """Fail unless the sentence is true, and all sentences that it contains."""
        text = str(sentence).replace("\u00a0", " ")
        for part in sentence.about.get("parts", []):
            assert part.replace("\u00a0", " ").lower() in text.lower()
            self.check(part)
        self.text = text
        getattr(self, f"check_{sentence.kind}")(sentence.about)

    def check_evidence(self, about: Any) -> None:
        assert self.text == "; ".join(part.replace("\u00a0", " ") for part in about["parts"])

    def check_finding(self, about: Any) -> None:
        reasons = (
            "not enough evidence for a verdict",
            "the verdict comes from the model, and no single pattern in the raw labels shows it",
        )
        assert self.text in reasons

    def cross_fitted(self, groups: Any) -> tuple[list[list[float]], list[tuple[Answer, Answer]]]:
        """Return [agreed, pairs] within each group and across, and both groups' votes by item.

        Members are those found without the item's half of the items.
        """
        sums, votes = [[0.0, 0.0] for _ in range(3)], []
        for m, answers in self.answers.items():
            members = groups.by_half[groups.half[m]]
            for a, b in combinations(answers, 2):
                g, k = members[a], members[b]
                if min(g, k) >= 0:
                    kind = g if g == k else 2
                    sums[kind][0] += float(answers[a] @ answers[b])
                    sums[kind][1] += 1
            sides = [{n for n in answers if members[n] == g} for g in range(2)]
            if all(sides):
                votes.append(tuple(self.votes(m, side) for side in sides))
        return sums, votes

    def check_groups(self, about: Any) -> None:
        first, second, _, small, large, across, points, low, high, _, habit = self.parsed(
            rf"The annotators form two groups that answer differently \({NUMBER} and {NUMBER} annotators"
            rf"(, {NUMBER[1:-1]} in neither)?\)\. Counted on items not used to find them, two members of the "
            rf"smaller group agree on {SHARE} of shared items, two of the larger on {SHARE}, and members of "
            rf"different groups on {SHARE} \(mean difference (\d+) points, 95 % interval (\d+) to (\d+)\)\."
            r"(?: That is as often as by chance: [^.]*\.)?"
            rf"(?: On {NUMBER} items? that both groups labelled, (.*)\.)? Analyse .*"
        )
        groups = about["groups"]
        assert (whole(first), whole(second)) == ((groups.group == 0).sum(), (groups.group == 1).sum())
        sums, votes = self.cross_fitted(groups)
        shares = [agreed / pairs for agreed, pairs in sums]
        for text, share in zip((large, small, across), shares, strict=True):
            self.share(text, share)
        gap = (shares[0] + shares[1]) / 2 - shares[2]
        assert abs(gap - int(points) / 100) <= 0.005 + 1e-9
        assert 0 < int(low) / 100 <= gap + 0.005
        assert gap <= int(high) / 100 + 0.005
        assert min(shares[:2]) > shares[2]
        for name, word, mine, theirs in re.findall(
            rf"{NAME} (more|less) often: {SHARE} against {SHARE}", habit or ""
        ):
            p = self.names.index(name)
            means = [np.mean([pair[g][p] / pair[g].sum() for pair in votes]) for g in range(2)]
            self.share(mine, means[1])
            self.share(theirs, means[0])
            assert (means[1] > means[0]) == (word == "more")

    def check_contrast(self, about: Any) -> None:
        differ, n, how, mine, theirs, largest = self.parsed(
            rf"The most frequent answers of the groups differ on {NUMBER} of {NUMBER} shared items?, "
            rf"(mostly|most often) {NAME} in the smaller group and {NAME} in the larger \({NUMBER} items?\)\."
        )
        _, votes = self.cross_fitted(about["groups"])
        table = Counter((most(pair[1]), most(pair[0])) for pair in votes)
        table = Counter({pair: k for pair, k in table.items() if None not in pair})
        different = {pair: k for pair, k in table.items() if pair[0] != pair[1]}
        assert (whole(n), whole(differ)) == (table.total(), sum(different.values()))
        assert different[self.names.index(mine), self.names.index(theirs)] == whole(largest)
        assert whole(largest) == max(different.values())
        assert how == "most often" or 2 * whole(largest) >= whole(differ)

    def check_agreement(self, about: Any) -> None:
        words, alpha, _, low, high, agreed, advice = self.parsed(
            r"(.+): Krippendorff's α is (-?[\d.]+)( \(95 % interval (-?[\d.]+) to (-?[\d.]+)\))?\."
            rf"(?: Two annotators of an item agree with probability {SHARE}\.)?( Keep .*)?"
        )
        if agreed:
            by_item: dict[int, list[tuple[int, int]]] = defaultdict(list)
            for m, who, p in self.rows:
                by_item[m].append((who, p))
            pairs = [pair for labels in by_item.values() for pair in combinations(labels, 2)]
            equal = [a[1] == b[1] for a, b in pairs if a[0] != b[0]]
            self.share(agreed, sum(equal) / len(equal))
        value = self.alpha()
        assert abs(float(alpha) - value) <= 0.005 + 1e-9
        if low:
            assert float(low) - 0.005 <= value <= float(high) + 0.005
        assert (advice is not None) == (value < 0.667)
        ends = (float(low), float(high)) if low else (value, value)
        marks = [(0.8, "high"), (0.667, "enough for tentative conclusions"), (0.2, "low"), (0.0, "slight")]
        levels = [next((level for mark, level in marks if end >= mark and end > 0), None) for end in ends]
        if min(abs(end - mark) for end in ends for mark, _ in marks) < 0.005:
            return  # the interval is rounded
        if levels[0] is None:
            assert words == f"Agreement is {'below' if ends[1] < 0 else 'not clearly above'} chance"
        elif levels[0] == levels[1]:
            assert words == f"Agreement beyond chance is {levels[0]}"
        else:
            assert words == f"Agreement beyond chance is between {levels[0]} and {levels[1]}"

    def check_rivals(self, about: Any) -> None:
        *rivals, share = self.parsed(
            rf"When two labels of an item differ, they are {NAME} and {NAME} in {SHARE} of the cases\."
        )
        pairs: Counter[frozenset[str]] = Counter()
        for counts in self.counts.values():
            for (c, i), (k, j) in combinations(counts.items(), 2):
                pairs[frozenset((self.names[c], self.names[k]))] += i * j
        value = pairs[frozenset(rivals)] / pairs.total()
        self.share(share, value)
        assert value >= 0.5

    def check_parts(self, about: Any) -> None:
        parts, largest, _ = self.parsed(
            rf"The labels form {NUMBER} unconnected parts: no annotator labelled items of two parts "
            rf"\(the largest has {NUMBER} of {NUMBER} items?\)\. Have .*"
        )
        home: dict[Any, Any] = {}

        def find(x: Any) -> Any:
            home.setdefault(x, x)
            while home[x] != x:
                home[x] = home[home[x]]
                x = home[x]
            return x

        for m, n, _ in self.rows:
            home[find(("item", m))] = find(("person", n))
        sizes = Counter(find(("item", m)) for m in self.counts)
        assert (whole(parts), whole(largest)) == (len(sizes), max(sizes.values()))

    def check_check(self, about: Any) -> None:
        n, share, listing, *leaning = self.parsed(
            rf"Talk to {NUMBER} annotators? first \({SHARE} of the labels"
            r"(?:; most disagreements first)?\): (.*?)\. "
            rf"(?:{NUMBER} of them answer (?:{NAME} (more|less) often|(higher|lower)) than the others of the "
            r"same items\. )?Read the evidence before you exclude anyone\."
        )
        codes = about["annotators"].tolist()
        assert whole(n) == len(codes)
        alike, name, often, higher = leaning
        if alike:
            sign = 1 if (often or higher) in ("more", "higher") else -1
            moves = [np.array(self.moves(code, name)) * sign for code in codes]
            sure = [len(m) > 1 and m.mean() > 1.96 * m.std(ddof=1) / math.sqrt(len(m)) for m in moves]
            assert sum(sure) >= whole(alike) > len(codes) / 2
        extra = [self.load[c] * min(max(-self.standings[c].get("gap", -1.0), 0), 1) for c in codes]
        assert all(first >= second - 1e-9 for first, second in pairwise(extra))
        self.share(share, sum(self.load[code] for code in codes) / len(self.rows))
        facts = re.findall(rf"agrees on {SHARE}, others on {SHARE} of the same items", listing)
        assert len(facts) == sum(self.standings[code].get("n_usual", 0) > 0 for code in codes[:5])
        for code, (agreed, usual) in zip(codes, facts, strict=False):
            row = self.standings[code]
            self.share(agreed, row["usual"] + row["gap"])
            self.share(usual, row["usual"])

    def check_adjudicate(self, about: Any) -> None:
        n, least = self.parsed(
            rf"Adjudicate {NUMBER} items?: (?:each|it) has {NUMBER} or more labels,(?: and)? its two most "
            r"frequent answers are at most 20 percentage points apart"
            r"(?:, and the model is unsure which is more common)?\. Have .*"
        )
        assert whole(n) == len(about["items"])
        assert whole(least) == max(min(4, max(c.total() for c in self.counts.values())), 2)
        for m in about["items"].tolist():
            top = [*sorted(self.counts[m].values(), reverse=True), 0]
            assert sum(top) >= whole(least)
            assert top[0] - top[1] <= 0.2 * sum(top) + 1e-9

    def check_more(self, about: Any) -> None:
        n, by_all, labels, other_labels, share, other_share = self.parsed(
            rf"Collect more labels for {NUMBER} items?"
            r"( from new annotators: the present ones have labelled (?:it|all of them))?\."
            r"(?: (?:It has|They have) ([\d.,]+) labels?"
            r"(?: each| on average)?(?: \(other items: ([\d.]+)\))?\.)?"
            rf"(?: (?:On average, )?{SHARE} of (?:its|an item’s) labels are the most frequent answer "
            rf"\(other items: {SHARE}\)\.)?"
        )
        items = set(about["items"].tolist())
        others = [m for m, counts in self.counts.items() if m not in items and counts]
        assert whole(n) == len(items)
        assert (by_all is not None) == all(len(self.answers[m]) == len(self.people) for m in items)
        assert labels or share
        if labels:
            mean = self.labels_of(items).total() / len(items)
            assert abs(mean - float(labels.replace(",", ""))) <= 0.05 + 1e-9
            assert (other_labels is None) == (not others)
            if other_labels:
                usual = self.labels_of(others).total() / len(others)
                assert mean < usual
                assert abs(usual - float(other_labels)) <= 0.05 + 1e-9
        if share:
            tops = [np.mean([self.top(m) for m in group if self.counts[m]]) for group in (items, others)]
            assert tops[0] < tops[1]
            self.share(share, tops[0])
            self.share(other_share, tops[1])

    def check_gold(self, about: Any) -> None:
        share, n, _, _ = self.parsed(
            rf"The most frequent label is correct for {SHARE} of {NUMBER} items? with a gold label "
            rf"\(95 % interval {SHARE} to {SHARE}\)\."
        )
        assert self.gold is not None
        items = [m for m, p in enumerate(self.gold) if p >= 0 and self.counts.get(m)]
        assert whole(n) == len(items)
        right = 0.0
        for m in items:
            best = [p for p, k in self.counts[m].items() if k == max(self.counts[m].values())]
            right += (self.gold[m] in best) / len(best)
        self.share(share, right / len(items))

    def check_overturned(self, about: Any) -> None:
        m, predicted, counts = about["item"], about["predicted"], self.counts[about["item"]]
        votes, total, first, k, second = self.parsed(
            rf"(\d+) of (\d+) labels? are {NAME} and (\d+|none) (?:is|are) {NAME}\. "
            r"The (?:model chooses|gold label is) .*\."
        )
        if "take precedence" in self.text:
            assert self.gold is not None
            assert self.gold[m] == predicted
        frequent = self.names.index(first)
        assert [p for p, n in counts.items() if n == max(counts.values())] == [frequent]
        assert (int(votes), int(total)) == (counts[frequent], counts.total())
        assert (0 if k == "none" else int(k), second) == (counts[predicted], self.names[predicted])
        agree = re.search(rf"agree with others more often \({SHARE} versus {SHARE}\)", self.text)
        if agree:
            means = []
            for p in (predicted, frequent):
                people = [row[1] for row in self.rows if row[::2] == (m, p) and self.standings[row[1]]["n"]]
                means.append(sum(self.standings[n]["agreement"] for n in people) / len(people))
            assert means[0] > means[1]
            for share, value in zip(agree.groups(), means, strict=True):
                self.share(share, value)
        pattern = rf"{NUMBER} similarly labelled items? received {SHARE} {NAME} and {SHARE} {NAME}"
        similar = re.search(pattern, self.text)
        if similar:
            assert whole(similar[1]) == len(about["similar"])
            labels = self.labels_of(about["similar"])
            shares = [labels[self.names.index(similar[k])] / labels.total() for k in (3, 5)]
            assert shares[0] > shares[1]
            self.share(similar[2], shares[0])
            self.share(similar[4], shares[1])

    def check_cluster(self, about: Any) -> None:
        n, rest = self.parsed(rf"{NUMBER} items?(?:; (.*)| without labels)")
        assert whole(n) == len(about["items"])
        labels = self.labels_of(about["items"])
        assert (rest is None) == (not labels)
        if rest:
            pattern = rf"{SHARE} of (?:their|its) labels are {NAME}(?: and {SHARE} {NAME})?"
            first, name, second, other = self.parsed(pattern, rest)
            self.share(first, labels[self.names.index(name)] / labels.total())
            if second:
                self.share(second, labels[self.names.index(other)] / labels.total())

    def check_group(self, about: Any) -> None:
        habits, within, between = self.parsed(
            r"(?:On items that other annotators labelled too, this group chooses (.*) than they do\. )?Its "
            rf"members agree with one another on {SHARE} of shared items, and with the others on {SHARE}\."
        )
        side = set(about["members"].tolist())
        shares = self.pairs(side, side), self.pairs(side, self.people - side)
        assert shares[0] > shares[1]
        self.share(within, shares[0])
        self.share(between, shares[1])
        mine, usual = np.zeros((2, len(self.names)))
        for m, answers in self.answers.items():
            n = sum(code in side for code in answers)
            r = len(answers) - n
            if n and r:
                mine += self.votes(m, side)
                usual += n * self.votes(m, self.people - side) / r
        pattern = rf"{NAME} (more|less) often \({SHARE} versus {SHARE}\)"
        for name, word, first, second in re.findall(pattern, habits or ""):
            p = self.names.index(name)
            self.share(first, mine[p] / mine.sum())
            self.share(second, usual[p] / mine.sum())
            assert (mine[p] > usual[p]) == (word == "more")

    def check_standing(self, about: Any) -> None:
        value, n, low, high, _, items, usual, gap, bottom, top = self.parsed(
            rf"agrees with another annotator on {SHARE} of {NUMBER} items?"
            rf"(?: \(95 % interval {SHARE} to {SHARE}\))?"
            rf"(?:; on (the same items|{NUMBER} of these items), two others agree on {SHARE} \(difference "
            r"([+-]\d+) points, 95 % interval ([+-]\d+) to ([+-]\d+)\))?"
        )
        row = self.standings[about["annotator"]]
        assert whole(n) == row["n"]
        self.share(value, row["agreement"])
        assert (low is not None) == (row["n"] > 1)
        if low:
            self.share(low, max(row["agreement"] - 1.96 * row["error"], 0.0))
            self.share(high, min(row["agreement"] + 1.96 * row["error"], 1.0))
        assert (usual is not None) == (row["n_usual"] > 1)
        if usual:
            assert row["n_usual"] == (row["n"] if items is None else whole(items))
            self.share(usual, row["usual"])
            reach = 1.96 * row["gap_error"]
            for text, exact in ((gap, row["gap"]), (bottom, row["gap"] - reach), (top, row["gap"] + reach)):
                assert abs(int(text) / 100 - exact) <= 0.005 + 1e-9

    def check_bias(self, about: Any) -> None:
        name, points, often, grades, higher, reach = self.parsed(
            rf"answers (?:{NAME} (\d+) points (more|less) often|([\d.]+) (higher|lower) on the scale) than "
            r"the others of the same items \(± ([\d.]+)\)"
        )
        assert self.ordinal == (name is None)
        moves = self.moves(about["annotator"], name)
        value = float(np.mean(moves))
        assert (
            abs(abs(value) - (float(grades) if self.ordinal else int(points) / 100))
            <= (0.05 if self.ordinal else 0.005) + 1e-9
        )
        assert (value > 0) == ((higher or often) in ("higher", "more"))
        margin = 1.96 * float(np.std(moves, ddof=1)) / math.sqrt(len(moves))
        assert abs(value) > margin
        assert (
            abs(margin - (float(reach) if self.ordinal else float(reach) / 100))
            <= (0.05 if self.ordinal else 0.005) + 1e-9
        )

    def moves(self, annotator: int, name: str | None) -> list[float]:
        """Return answer − mean of the others by item, for a class, or in grades."""
        moves = []
        for answers in self.answers.values():
            if annotator in answers and len(answers) > 1:
                others = [answer for n, answer in answers.items() if n != annotator]
                change = answers[annotator] - self.others_labels(answers, annotator, others)
                moves.append(float(change @ self.values if name is None else change[self.names.index(name)]))
        return moves

    def others_labels(self, answers: Any, n: int, others: list[Answer]) -> Answer:
        """Return the shares of the others' labels of an item; each of their labels counts once."""
        m = next(m for m, these in self.answers.items() if these is answers)
        counts = Counter(p for item, who, p in self.by_item[m] if who != n)
        shares = np.array([counts[p] for p in range(len(self.names))], dtype=float)
        return shares / shares.sum()

    def check_member(self, about: Any) -> None:
        self.parsed(rf"belongs to the smaller group \(probability {SHARE}\)")

    def check_constant(self, about: Any) -> None:
        name, n = self.parsed(rf"answers {NAME} to all {NUMBER} items")
        given = {p for _, who, p in self.rows if who == about["annotator"]}
        assert given == {self.names.index(name)}
        assert whole(n) == sum(about["annotator"] in answers for answers in self.answers.values()) >= 5

    def check_blind(self, about: Any) -> None:
        pattern = rf"agrees with the others hardly more often than by chance \({SHARE}\)"
        row = self.standings[about["annotator"]]
        self.share(*self.parsed(pattern), row["chance"])
        assert row["agreement"] - row["chance"] <= self.usual_excess / 2 + 1e-9

    def check_undecided(self, about: Any) -> None:
        n, shared, chance, _, _, needed = self.parsed(
            rf"{NUMBER} labels?: (?:all labels are alike|shares {NUMBER} items? with others|"
            rf"agreement with the others is not significantly above the {SHARE} expected by chance|"
            rf"the labels fit the smaller group with probability {SHARE}|"
            rf"the labels are random with probability {SHARE})"
            rf"(?:; about {NUMBER} labels on items that others label too are usually enough here)?"
        )
        row = self.standings[about["annotator"]]
        assert whole(n) == self.load[about["annotator"]]
        assert (shared is not None) == (row["n"] <= 2)
        if chance:
            self.share(chance, row["chance"])
            assert row["agreement"] - row["chance"] - 1.645 * row["excess_error"] <= 1e-9
        assert needed is None or whole(needed) > whole(n)

    def check_rule(self, about: Any) -> None:
        pattern = rf"chooses {NAME} on {NUMBER} of {NUMBER} items? that the others label {NAME}"
        mine, k, n, theirs = self.parsed(pattern)
        me, labels = {about["annotator"]}, Counter[int]()
        for m in self.answers:
            label, others = most(self.votes(m, me)), most(self.votes(m, self.people - me))
            if label is not None and others == self.names.index(theirs):
                labels[label] += 1
        assert (whole(k), whole(n)) == (labels[self.names.index(mine)], labels.total())
        assert 2 * whole(k) >= whole(n)

    def check_attribute(self, about: Any) -> None:
        """Count triples: annotators i and j with the same value, k with another."""
        number = r"(−?\d+) %"
        pattern = rf"{NAME} explains {number} of the disagreement about an item "
        ends = rf"\(90 % interval {number} to {number}\)(, which may be nothing)?\."
        name, share, low, high, nothing = self.parsed(pattern + ends)
        assert name == about["column"]
        value = [str(entry) for entry in self.columns[name].to_pylist()]
        size = Counter(value)
        sums = {kind: defaultdict[tuple[str, str], list[float]](list) for kind in ("contrast", "differ")}
        for answers in self.answers.values():
            terms = {kind: defaultdict[tuple[str, str], list[float]](list) for kind in sums}
            for i, j in permutations(answers, 2):
                together = float(answers[i] @ answers[j])
                terms["differ"][value[i], value[j]].append(1 - together)
                for k in answers if value[i] == value[j] else ():
                    if value[k] != value[i]:
                        apart = float(answers[i] @ answers[k])
                        terms["contrast"][value[i], value[k]].append(together - apart)
            for kind, by_pair in terms.items():
                for pair, numbers in by_pair.items():
                    sums[kind][pair].append(float(np.mean(numbers)))

        def mean(kind: str) -> float:
            """Return the mean over pairs of values, weighted by the annotators, of the mean over items."""
            weight = {pair: size[pair[0]] * size[pair[1]] for pair in sums[kind]}
            total = sum(w * float(np.mean(sums[kind][pair])) for pair, w in weight.items())
            return total / sum(weight.values())

        same = sum((n / len(value)) ** 2 for n in size.values())
        explained = 100 * (1 - same) * mean("contrast") / mean("differ")
        shown = [int(text.replace("−", "-")) for text in (low, share, high)]
        assert abs(shown[1] - explained) <= 0.5 + 1e-9
        assert shown[0] <= shown[1] <= shown[2]
        assert bool(nothing) == (shown[0] <= 0) or shown[0] == 0

    def check_column(self, about: Any) -> None:
        pattern = rf"(.*) is {NAME} for {SHARE} of group \w+ and {SHARE} of all annotators\."
        name, value, share, overall = self.parsed(pattern)
        has_value = [str(entry) == value for entry in self.columns[about["column"]].to_pylist()]
        assert (name, value) == (about["column"], about["value"])
        members = [has_value[n] for n in about["members"]]
        self.share(share, sum(members) / len(members))
        self.share(overall, sum(has_value) / len(has_value))
