// Judges: replacement test, effective votes of the panel, and likely errors.

const judges = data.judges;

function needed(row) {
  if (row.passed) return "none";
  if (!row.n_humans) return "–";
  return row.labels_needed === null ? "more would not help" : `${whole(row.labels_needed)} labels`;
}

function judgeTable() {
  const heads = ["Judge", "May replace a human", "Winning rate", "Advantage", "Humans tested", "Labels needed", "Pooled difference (95 %)", "Disagreement of humans"];
  const lines = judges.rows.map((row, j) => h("tr", {}, h("th", { scope: "row" }, ...breakable(judges.names[j])),
    h("td", {}, h("span", { class: `tag ${row.passed ? "typical" : "few"}` }, row.passed ? "✓ yes" : "… no")),
    h("td", { class: "number" }, decimal(row.winning_rate, 2)),
    h("td", { class: "number" }, decimal(row.advantage, 2)),
    h("td", { class: "number" }, `${whole(row.n_humans)} of ${whole(row.n_humans + row.n_humans_left_out)}`),
    h("td", {}, needed(row)),
    h("td", { class: "number" }, `${decimal(row.pooled_difference, 3)} (${decimal(row.pooled_low, 3)} to ${decimal(row.pooled_high, 3)})`),
    h("td", {}, `${percent(row.disagreement)} with the judge, ${percent(row.human_disagreement)} with a human`)));
  return offered("judges", "Replacement test of the judges",
    h("table", { id: "judges-table" }, h("caption", {}, judges.terms),
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...lines)));
}

function togetherTable() {
  const { correlation } = judges.panel;
  const lines = correlation.map((row, i) => h("tr", {}, h("th", { scope: "row" }, ...breakable(judges.names[i])),
    ...row.map((value, j) => (i === j ? h("td", {}, "–") : paint(h("td", {}, decimal(value, 2)), Math.max(value, 0))))));
  return offered("judges-together", "Correlation of judges",
    h("table", { class: "heat", id: "judges-together" },
      h("caption", {}, "Correlation of two judges’ answers given the human labels: 0 for independent judges, 1 for copies."),
      h("thead", {}, h("tr", {}, h("td"), ...judges.names.map((name) => h("th", { scope: "col" }, ...breakable(name))))),
      h("tbody", {}, ...lines)));
}

function wrongList() {
  const parts = judges.wrong.flatMap((one) => [
    h("p", { class: "note" }, `${one.judges.join(", ")}: ‘${one.answer}’, the answer of an estimated ${percent(one.share_as_judge, 1)} of humans. `
      + `The most common human answer is ‘${one.human_answer}’ (${whole(one.n_human_labels)} labels):`),
    quote(one.item)]);
  return h("details", { id: "judges-wrong" }, h("summary", {}, "Most likely errors of the judges"),
    h("p", { class: "lead" }, "If all judges agree on another answer than the humans, the human labels may be wrong."), ...parts);
}

function showJudges() {
  if (!judges) return;
  section("judges", "Judges", judges.says, judgeTable(),
    judges.panel ? h("h3", {}, "Effective votes of the panel") : null, judges.panel ? h("p", {}, judges.panel.says) : null,
    judges.panel ? togetherTable() : null, judges.wrong.length ? wrongList() : null);
}
