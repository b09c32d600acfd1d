// Judges beside humans: who may replace one, how many votes the panel is, and what it is surely wrong about.

const judges = data.judges;

function needed(row) {
  if (row.passed) return "none";
  if (!row.n_humans) return "–";
  return row.labels_needed === null ? "would not help" : `${whole(row.labels_needed)} labels`;
}

function judgeTable() {
  const heads = ["Judge", "May replace", "Winning rate", "Advantage", "Humans", "More needed", "Pooled difference", "Humans disagree"];
  const lines = judges.rows.map((row, j) => h("tr", {}, h("th", { scope: "row" }, ...breakable(judges.names[j])),
    h("td", {}, h("span", { class: `tag ${row.passed ? "typical" : "few"}` }, row.passed ? "✓ yes" : "… no")),
    h("td", { class: "number" }, decimal(row.winning_rate, 2)),
    h("td", { class: "number" }, decimal(row.advantage, 2)),
    h("td", { class: "number" }, `${whole(row.n_humans)} of ${whole(row.n_humans + row.n_humans_left_out)}`),
    h("td", {}, needed(row)),
    h("td", { class: "number" }, `${decimal(row.pooled_difference, 3)} (${decimal(row.pooled_low, 3)} to ${decimal(row.pooled_high, 3)})`),
    h("td", {}, `${percent(row.disagreement)} with it, ${percent(row.human_disagreement)} with a human`)));
  return offered("judges", "Judges’ test",
    h("table", { id: "judges-table" }, h("caption", {}, judges.terms),
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...lines)));
}

function togetherTable() {
  const { correlation } = judges.panel;
  const lines = correlation.map((row, i) => h("tr", {}, h("th", { scope: "row" }, ...breakable(judges.names[i])),
    ...row.map((value, j) => (i === j ? h("td", {}, "–") : paint(h("td", {}, decimal(value, 2)), Math.max(value, 0))))));
  return offered("judges-together", "How judges err together",
    h("table", { class: "heat", id: "judges-together" },
      h("caption", {}, "Correlation of two judges’ answers, given what humans say of the item: 0 is independent, 1 is a copy."),
      h("thead", {}, h("tr", {}, h("td"), ...judges.names.map((name) => h("th", { scope: "col" }, ...breakable(name))))),
      h("tbody", {}, ...lines)));
}

function wrongList() {
  const parts = judges.wrong.flatMap((one) => [
    h("p", { class: "note" }, `‘${one.answer}’, say ${one.judges.join(", ")}, and ${percent(one.share_as_judge, 1)} of humans would; `
      + `they say ‘${one.human_answer}’ (${whole(one.n_human_labels)} labels) of:`),
    quote(one.item)]);
  return h("details", { id: "judges-wrong" }, h("summary", {}, "Items that judges are most surely wrong about"),
    h("p", { class: "lead" }, "Or the humans are: where all judges say the same against them, look at the item."), ...parts);
}

function showJudges() {
  if (!judges) return;
  section("judges", "Judges", judges.says, judgeTable(),
    judges.panel ? h("h3", {}, "How many votes the panel is") : null, judges.panel ? h("p", {}, judges.panel.says) : null,
    judges.panel ? togetherTable() : null, judges.wrong.length ? wrongList() : null);
}
