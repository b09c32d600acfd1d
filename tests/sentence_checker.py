"""Every sentence of a page, counted again from the raw labels by plain loops over lists and dictionaries.

Nothing here is shared with what writes the sentences but their text, their kind and what they speak of.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np

from dissensus.annotators.sentences import Sentence

SHARE = r"(under 1 %|over 99 %|\d+ %)"
NAME = r"‘(.*?)’"
NUMBER = r"([\d,]+)"

Answer = dict[int, float]


def sentences_in(content: Any) -> Iterator[Sentence]:
    """Every sentence anywhere in a page's content."""
    if isinstance(content, Sentence):
        yield content
    elif isinstance(content, dict):
        for value in content.values():
            yield from sentences_in(value)
    elif isinstance(content, list | tuple | np.ndarray):
        for value in content:
            yield from sentences_in(value)


def whole(text: str) -> int:
    return int(text.replace(",", ""))


class Checker:
    """Raw labels as (item, annotator, class) codes, and the names of the classes and annotators."""

    def __init__(self, labels: Any) -> None:
        self.names = [str(name) for name in labels.classes]
        self.people = [str(name) for name in labels.annotators]
        self.gold = None if labels.gold is None else labels.gold.tolist()
        self.columns = labels.annotator_table
        self.ordinal = labels.label_type == "ordinal"
        self.rows = list(
            zip(labels.item.tolist(), labels.annotator.tolist(), labels.label.tolist(), strict=True)
        )
        self.counts: dict[int, Counter[int]] = defaultdict(Counter)
        given: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        for m, n, p in self.rows:
            self.counts[m][p] += 1
            given[m, n][p] += 1
        self.answers: dict[int, dict[int, Answer]] = defaultdict(
            dict
        )  # item, annotator: shares of their labels
        for (m, n), labels_ in given.items():
            total = sum(labels_.values())
            self.answers[m][n] = {p: k / total for p, k in labels_.items()}
        self.load = Counter(n for _, n, _ in self.rows)
        self.standings = self._standings()
        known = [one for one in self.standings.values() if one["n"]]
        self.usual = median(one["agreement"] for one in known) if known else math.nan
        self.usual_excess = median(one["agreement"] - one["chance"] for one in known) if known else math.nan

    # ---- plain statistics ----

    def _standings(self) -> dict[int, dict[str, Any]]:
        """How everybody agrees with the others on the items they share."""
        own: dict[int, list[tuple[Answer, Answer]]] = defaultdict(list)
        for answers in self.answers.values():
            if len(answers) < 2:
                continue
            total: dict[int, float] = defaultdict(float)
            for answer in answers.values():
                for p, share in answer.items():
                    total[p] += share
            for n, answer in answers.items():
                r = len(answers) - 1
                others = {p: (share - answer.get(p, 0.0)) / r for p, share in total.items()}
                own[n].append((answer, others))
        return {n: self._standing(own.get(n, [])) for n in range(len(self.people))}

    def _standing(self, pairs: list[tuple[Answer, Answer]]) -> dict[str, Any]:
        n = len(pairs)
        if not n:
            return {"n": 0}
        matches = [sum(share * others.get(p, 0.0) for p, share in answer.items()) for answer, others in pairs]
        mean = sum(matches) / n
        given: dict[int, float] = defaultdict(float)
        heard: dict[int, float] = defaultdict(float)
        for answer, others in pairs:
            for p, share in answer.items():
                given[p] += share / n
            for p, share in others.items():
                heard[p] += share / n
        chance = sum(share * heard.get(p, 0.0) for p, share in given.items())
        moves = []
        for answer, others in pairs:
            keys = set(given) | set(heard)
            moves.append(
                sum(
                    (answer.get(p, 0.0) - given.get(p, 0.0)) * (others.get(p, 0.0) - heard.get(p, 0.0))
                    for p in keys
                )
            )
        free = max(n - 1, 1)
        spread = math.sqrt(sum((x - mean) ** 2 for x in matches) / free / n)
        excess = mean - chance
        error = math.sqrt(sum((x - excess) ** 2 for x in moves) / free / n)
        return {"n": n, "agreement": mean, "error": spread, "chance": chance, "excess_error": error}

    def pairs(self, side: set[int], other: set[int]) -> tuple[float, float]:
        """Agreement of two annotators, one of each side, added over items; and how many such pairs."""
        agreed = total = 0.0
        for answers in self.answers.values():
            for a, b in combinations(answers, 2):
                times = ((a in side) and (b in other)) + ((b in side) and (a in other))
                if times:
                    one, two = answers[a], answers[b]
                    agreed += times * sum(share * two.get(p, 0.0) for p, share in one.items())
                    total += times
        return agreed, total

    def most(self, votes: Any) -> int | None:
        top = max(votes.values(), default=0)
        best = [p for p, n in votes.items() if n > top - 1e-9 and n > 0]
        return best[0] if len(best) == 1 else None

    def votes(self, m: int, side: set[int]) -> dict[int, float]:
        found: dict[int, float] = defaultdict(float)
        for n, answer in self.answers[m].items():
            if n in side:
                for p, share in answer.items():
                    found[p] += share
        return found

    def alpha(self) -> float:
        together: dict[tuple[int, int], float] = defaultdict(float)
        for counts in self.counts.values():
            n = sum(counts.values())
            if n < 2:
                continue
            for c, i in counts.items():
                for k, j in counts.items():
                    together[c, k] += i * (j - (c == k)) / (n - 1)
        totals = [sum(value for (c, _), value in together.items() if c == p) for p in range(len(self.names))]

        def far(c: int, k: int) -> float:
            if not self.ordinal:
                return float(c != k)
            low, high = min(c, k), max(c, k)
            return (sum(totals[low : high + 1]) - (totals[c] + totals[k]) / 2) ** 2

        n = sum(totals)
        observed = sum(value * far(c, k) for (c, k), value in together.items()) / n
        expected = sum(a * b * far(c, k) for c, a in enumerate(totals) for k, b in enumerate(totals))
        return 1 - observed * n * (n - 1) / expected

    # ---- the text against them ----

    def share(self, said: str, value: float) -> None:
        if said.startswith("under"):
            assert 0 < value < 0.01
        elif said.startswith("over"):
            assert 0.99 < value < 1
        else:
            assert abs(float(said[:-2]) / 100 - value) <= 0.005 + 1e-9, (said, value)

    def parsed(self, pattern: str, text: str) -> Sequence[str]:
        found = re.fullmatch(pattern, text)
        assert found, text
        return found.groups()

    def check(self, sentence: Sentence) -> None:
        """Fail unless the sentence is true."""
        text = str(sentence).replace("\u00a0", " ")
        getattr(self, f"check_{sentence.kind}")(text, sentence.about)

    def check_parts_of(self, about: Any) -> None:
        for part in about["parts"]:
            self.check(part)

    def check_evidence(self, text: str, about: Any) -> None:
        assert text == "; ".join(part.replace("\u00a0", " ") for part in about["parts"])
        self.check_parts_of(about)

    def check_member(self, text: str, about: Any) -> None:
        (view,) = about["parts"]
        n = re.match(r"(?:one of )?([\d,]+) (?:who|annotators?)", text)
        assert n
        assert whole(n[1]) == len(view.about["members"])
        self.check_parts_of(about)

    def check_views(self, text: str, about: Any) -> None:
        self.check_parts_of(about)

    def check_groups(self, text: str, about: Any) -> None:
        assert about["parts"][0].replace("\u00a0", " ") in text
        self.check_parts_of(about)

    def check_agreement(self, text: str, about: Any) -> None:
        words, alpha, _, low, high, advice = self.parsed(
            r"(.+): Krippendorff's α is (-?[\d.]+)( \(95 % interval (-?[\d.]+) to (-?[\d.]+)\))?\."
            r"( Keep .*)?",
            text,
        )
        value = self.alpha()
        assert abs(float(alpha) - value) <= 0.005 + 1e-9
        if low:
            assert float(low) - 0.005 <= value <= float(high) + 0.005
        marks = [(0.8, "Annotators agree well"), (0.667, "Enough agreement for tentative conclusions")]
        marks += [(0.2, "Annotators disagree often"), (0.0, "Agreement is little above chance")]
        marks += [(-9.0, "Annotators agree less than by chance")]
        assert (advice is not None) == (value < 0.667)
        assert words == next(said for mark, said in marks if value >= mark)

    def check_rivals(self, text: str, about: Any) -> None:
        said, a, b = self.parsed(rf"{SHARE} of all disagreements are between {NAME} and {NAME}\.", text)
        pairs: Counter[tuple[int, int]] = Counter()
        for counts in self.counts.values():
            for (c, i), (k, j) in combinations(sorted(counts.items()), 2):
                pairs[c, k] += i * j
        key = tuple(sorted((self.names.index(a), self.names.index(b))))
        value = pairs[key] / sum(pairs.values())  # type: ignore[index]
        self.share(said, value)
        assert value >= 0.5

    def check_parts(self, text: str, about: Any) -> None:
        parts, largest, _ = self.parsed(
            rf"The labels fall into {NUMBER} parts that nobody links "
            rf"\(the largest has {NUMBER} of {NUMBER} items?\): .*",
            text,
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

    def check_check(self, text: str, about: Any) -> None:
        n, said, points = self.parsed(
            rf"Check {NUMBER} annotators? \({SHARE} of the labels\): .*\. "
            r"The others agree with (?:them|this one) (\d+) points less often than with one another\.",
            text,
        )
        side = {int(one) for one in about["annotators"]}
        assert whole(n) == len(side)
        self.share(said, sum(self.load[one] for one in side) / len(self.rows))
        rest = set(range(len(self.people))) - side
        agreed, total = self.pairs(rest, rest)
        across, crossed = self.pairs(side, rest)
        gap = agreed / total - across / crossed
        assert gap > 0
        assert abs(gap - int(points) / 100) <= 0.005 + 1e-9

    def check_adjudicate(self, text: str, about: Any) -> None:
        (n,) = self.parsed(rf"Adjudicate {NUMBER} items?: with 4 labels or more, .*", text)
        items = [int(m) for m in about["items"]]
        assert whole(n) == len(items)
        for m in items:
            top = [*sorted(self.counts[m].values(), reverse=True), 0]
            assert sum(top) >= 4
            assert top[0] - top[1] <= 0.2 * sum(top) + 1e-9

    def check_more(self, text: str, about: Any) -> None:
        n, mean, said, _, rest = self.parsed(
            rf"Ask for more labels on {NUMBER} items?: (?:they have|it has) ([\d.]+) (?:on average|labels?), "
            rf"and (?:their|its) most frequent answer has {SHARE} of them( \({SHARE} elsewhere\))?\.",
            text,
        )
        items = {int(m) for m in about["items"]}
        assert whole(n) == len(items)
        assert abs(sum(sum(self.counts[m].values()) for m in items) / len(items) - float(mean)) <= 0.05 + 1e-9

        def top(m: int) -> float:
            return max(self.counts[m].values(), default=0) / max(sum(self.counts[m].values()), 1)

        self.share(said, sum(map(top, items)) / len(items))
        others = [m for m, counts in self.counts.items() if m not in items and counts]
        if rest:
            self.share(rest, sum(map(top, others)) / len(others))

    def check_gold(self, text: str, about: Any) -> None:
        said, n, _, _ = self.parsed(
            rf"The most frequent label is right on {SHARE} of {NUMBER} items? with gold "
            rf"\(95 % interval {SHARE} to {SHARE}\)\.",
            text,
        )
        assert self.gold is not None
        asked = [m for m, p in enumerate(self.gold) if p >= 0 and self.counts.get(m)]
        assert whole(n) == len(asked)
        right = 0.0
        for m in asked:
            top = max(self.counts[m].values())
            best = [p for p, k in self.counts[m].items() if k == top]
            right += (self.gold[m] in best) / len(best)
        self.share(said, right / len(asked))

    def check_overturned(self, text: str, about: Any) -> None:
        m, counts = about["item"], self.counts[about["item"]]
        votes, total, most, own, given = self.parsed(
            rf"(\d+) of (\d+) said {NAME} and (\d+|nobody) {NAME}\. The (?:model gives|gold label is) .*\.",
            text,
        )
        if "gold decides" in text:
            assert self.gold is not None
            assert self.gold[m] == about["given"]
        assert self.most(counts) == self.names.index(most)
        assert (int(votes), int(total)) == (counts[self.names.index(most)], sum(counts.values()))
        assert (0 if own == "nobody" else int(own)) == counts[about["given"]]
        assert given == self.names[about["given"]]
        sides = re.search(rf"agree with others more often \({SHARE} against {SHARE}\)", text)
        if sides:
            means = []
            for side in (about["given"], self.names.index(most)):
                said = [
                    self.standings[n]["agreement"]
                    for i, n, p in self.item_rows(m)
                    if p == side and self.standings[n]["n"]
                ]
                means.append(sum(said) / len(said))
            assert means[0] > means[1]
            for said_share, value in zip(sides.groups(), means, strict=True):
                self.share(said_share, value)
        alike = re.search(rf"([\d,]+) items? labelled like it got {SHARE} {NAME} and {SHARE} {NAME}", text)
        if alike:
            got: Counter[int] = Counter()
            for one in about["alike"]:
                got += self.counts[int(one)]
            assert whole(alike[1]) == len(about["alike"])
            shares = [got[self.names.index(alike[k])] / sum(got.values()) for k in (3, 5)]
            assert shares[0] > shares[1]
            self.share(alike[2], shares[0])
            self.share(alike[4], shares[1])

    def item_rows(self, m: int) -> list[tuple[int, int, int]]:
        if not hasattr(self, "_by_item"):
            self._by_item: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
            for row in self.rows:
                self._by_item[row[0]].append(row)
        return self._by_item[m]

    def check_cluster(self, text: str, about: Any) -> None:
        n, rest = self.parsed(rf"{NUMBER} items? that got (.*)", text)
        got: Counter[int] = Counter()
        for m in about["items"]:
            got += self.counts[int(m)]
        assert whole(n) == len(about["items"])
        for said, name in re.findall(rf"{SHARE} {NAME}", rest):
            self.share(said, got[self.names.index(name)] / max(sum(got.values()), 1))

    def check_view(self, text: str, about: Any) -> None:
        differ, n, how, own, theirs, largest = self.parsed(
            rf"gives? another answer than the others on {NUMBER} of {NUMBER} items? that both labelled, "
            rf"(mostly|most often) {NAME} where the others say {NAME} \({NUMBER}\)",
            text,
        )
        side = {int(one) for one in about["members"]}
        rest = set(range(len(self.people))) - side
        table: Counter[tuple[int, int]] = Counter()
        for m in self.answers:
            ours, others = self.most(self.votes(m, side)), self.most(self.votes(m, rest))
            if ours is not None and others is not None:
                table[ours, others] += 1
        different = {pair: k for pair, k in table.items() if pair[0] != pair[1]}
        assert (whole(n), whole(differ)) == (sum(table.values()), sum(different.values()))
        key = self.names.index(own), self.names.index(theirs)
        assert different[key] == whole(largest) == max(different.values())
        if how == "mostly":
            assert 2 * whole(largest) >= whole(differ)
        self.closer_to_their_own(side)

    def closer_to_their_own(self, side: set[int]) -> tuple[float, float]:
        rest = set(range(len(self.people))) - side
        (agreed, total), (across, crossed) = self.pairs(side, side), self.pairs(side, rest)
        assert agreed / total > across / crossed
        return agreed / total, across / crossed

    def check_group(self, text: str, about: Any) -> None:
        habits, within, between = self.parsed(
            r"(On the same items as the others it says .*\. )?Its members agree with one another on "
            rf"{SHARE}, with the others on {SHARE}\.",
            text,
        )
        side = {int(one) for one in about["members"]}
        found = self.closer_to_their_own(side)
        self.share(within, found[0])
        self.share(between, found[1])
        if not habits:
            return
        own: dict[int, float] = defaultdict(float)
        usual: dict[int, float] = defaultdict(float)
        weight = 0.0
        for answers in self.answers.values():
            n = sum(one in side for one in answers)
            r = len(answers) - n
            if not n or not r:
                continue
            weight += n
            for one, answer in answers.items():
                for p, share in answer.items():
                    if one in side:
                        own[p] += share
                    else:
                        usual[p] += n * share / r
        for part in re.sub(r"^On the same items as the others it says ", "", habits).split("; "):
            more = part.startswith("more often")
            for name, said, others in re.findall(rf"{NAME} \({SHARE} against {SHARE}\)", part):
                p = self.names.index(name)
                self.share(said, own[p] / weight)
                self.share(others, usual[p] / weight)
                assert (own[p] > usual[p]) == more

    def check_contrast(self, text: str, about: Any) -> None:
        n, name, one, other = self.parsed(
            rf"On {NUMBER} items? group \w+ says {NAME} {SHARE} of the time, group \w+ {SHARE}\.", text
        )
        sides = [{int(k) for k in side} for side in about["sides"]]
        p, both, sums, totals = self.names.index(name), 0, [0.0, 0.0], [0.0, 0.0]
        for m in (int(m) for m in about["items"]):
            votes = [self.votes(m, side) for side in sides]
            if all(votes):
                both += 1
                for k, found in enumerate(votes):
                    sums[k] += found.get(p, 0.0)
                    totals[k] += sum(found.values())
        assert both == whole(n)
        self.share(one, sums[0] / totals[0])
        self.share(other, sums[1] / totals[1])
        assert sums[0] / totals[0] - sums[1] / totals[1] >= 0.1 - 1e-9

    def check_standing(self, text: str, about: Any) -> None:
        value, n, low, high, usual = self.parsed(
            rf"agrees with the others on {SHARE} of {NUMBER} items? "
            rf"\(95 % interval {SHARE} to {SHARE}; usual: {SHARE}\)",
            text,
        )
        found = self.standings[about["annotator"]]
        assert whole(n) == found["n"]
        self.share(value, found["agreement"])
        self.share(low, max(found["agreement"] - 1.96 * found["error"], 0.0))
        self.share(high, min(found["agreement"] + 1.96 * found["error"], 1.0))
        self.share(usual, self.usual)

    def check_blind(self, text: str, about: Any) -> None:
        (chance,) = self.parsed(
            rf"answers hardly depend on the item: given without looking they would agree on {SHARE}", text
        )
        found = self.standings[about["annotator"]]
        self.share(chance, found["chance"])
        assert found["agreement"] - found["chance"] <= self.usual_excess / 2 + 1e-9

    def check_few(self, text: str, about: Any) -> None:
        n, said = self.parsed(
            rf"{NUMBER} labels?(: too few to tell"
            r"| that agree with the others not surely more than chance would)",
            text,
        )
        assert whole(n) == self.load[about["annotator"]]
        found = self.standings[about["annotator"]]
        assert said.startswith(":") == (found["n"] <= 2)
        if found["n"] > 2:
            assert found["agreement"] - found["chance"] - 1.96 * found["excess_error"] <= 1e-9

    def check_rule(self, text: str, about: Any) -> None:
        own, k, n, theirs = self.parsed(
            rf"says {NAME} on {NUMBER} of {NUMBER} items? that the others call {NAME}", text
        )
        me = {about["annotator"]}
        rest = set(range(len(self.people))) - me
        found: Counter[int] = Counter()
        for m in self.answers:
            mine, others = self.most(self.votes(m, me)), self.most(self.votes(m, rest))
            if mine is not None and others == self.names.index(theirs):
                found[mine] += 1
        assert (whole(k), whole(n)) == (found[self.names.index(own)], sum(found.values()))
        assert 2 * whole(k) >= whole(n)

    def check_column(self, text: str, about: Any) -> None:
        value, _, own, overall = self.parsed(
            rf"{NAME} \((.*)\) are {SHARE} of group \w+ and {SHARE} of all annotators\.", text
        )
        column = [str(one) for one in self.columns[about["column"]].to_pylist()]
        assert value == about["value"]
        mine = [column[n] == value for n in about["members"]]
        self.share(own, sum(mine) / len(mine))
        self.share(overall, sum(one == value for one in column) / len(column))
