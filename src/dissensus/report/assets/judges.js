// Judges: verdicts, agreement on one axis, confusion, likely errors, joint errors and corrected rates.

const { judges } = data;
const names_ = judges && judges.judges.map((row) => row.judge);
const JUDGE_VERDICTS = { replaces: ["typical", "✓"], nearly: ["minority", "≈"], no: ["differs", "✕"], "": ["few", "…"] };

function spread(value, low, high, digits = 2) {
  return value === null ? "–" : h("span", {}, decimal(value, digits),
    low === null ? null : h("span", { class: "interval" }, ` ${decimal(low, digits)} to ${decimal(high, digits)}`));
}

function judgeTable() {
  const rates = judges.positive ? ["tpr", "tnr"] : [];
  const heads = [["Judge"], ["Verdict"], ["Within ε of"], [kappaName(), "number"], ["Of a human", "number"],
    ...rates.map((name) => [name.toUpperCase(), "number"]), ["Bias", "minor"]];
  const lines = judges.judges.map((row) => h("tr", {}, h("th", { scope: "row" }, ...breakable(row.judge)),
    h("td", {}, h("span", { class: `tag ${JUDGE_VERDICTS[row.verdict][0]}` }, `${JUDGE_VERDICTS[row.verdict][1]} ${row.verdict || "no verdict"}`)),
    h("td", {}, row.within_epsilon_of),
    h("td", { class: "number" }, spread(row.kappa, row.kappa_low, row.kappa_high)),
    h("td", { class: "number" }, spread(row.human_kappa, row.human_kappa_low, row.human_kappa_high)),
    ...rates.map((name) => h("td", { class: "number" }, spread(row[name], row[`${name}_low`], row[`${name}_high`]),
      h("span", { class: "interval" }, ` (human ${decimal(row[`human_${name}`], 2)})`))),
    h("td", { class: "minor" }, (row.biases || "none shown") + (row.biases_not_tested && ` (${row.biases_not_tested} not tested)`))));
  const positive = judges.positive ? ` TPR: share of the humans’ answers ‘${judges.positive}’ that the judge gives too; TNR: the same of the other class.` : "";
  return offered("judges", "Verdicts on the judges", plainTable("judges-table",
    `κ: agreement with a random human of the item, beyond chance. Intervals have a level of 95 %.${positive}`, heads, lines));
}

function kappaName() {
  return judges.weighted ? "κ (quadratic weights)" : "κ";
}

// Judges and humans on one axis from the lowest end (0 at most) to 1, with the interval of a human behind them.
function axisTable() {
  const { human } = judges;
  const [, from, to] = human;
  const low = Math.min(0, ...judges.axis.map((row) => row[3]).filter((end) => end !== null));
  const x = (value) => (100 * (value - low)) / (1 - low);
  const rows = judges.axis.filter((row) => row[2] !== null).sort((a, b) => b[2] - a[2]);
  const lines = rows.map(([name, kind, value, left, right, n]) => h("tr", {},
    h("th", { scope: "row" }, ...breakable(name)), h("td", { class: "minor" }, kind), h("td", { class: "number" }, spread(value, left, right)),
    h("td", { class: "axis-cell" }, svg("svg", { viewBox: "-3 0 106 12", class: `on-axis ${kind}`, "aria-hidden": "true", preserveAspectRatio: "none" },
      ...(from === null ? [] : [svg("rect", { x: x(from), y: 0, width: x(to) - x(from), height: 12, class: "band" })]),
      svg("line", { x1: 0, x2: 100, y1: 6, y2: 6, class: "axis" }), svg("line", { x1: x(0), x2: x(0), y1: 1, y2: 11, class: "axis" }),
      ...(left === null ? [] : [svg("line", { x1: x(left), x2: x(Math.min(right, 1)), y1: 6, y2: 6, class: "reach" })]),
      svg("rect", { x: x(value) - 0.9, y: 2, width: 1.8, height: 8, class: "point" }))),
    h("td", { class: "number minor" }, whole(n))));
  const shown = judges.n_humans > rows.filter((row) => row[1] === "human").length ? " The humans with the most labels are shown." : "";
  return offered("judges-axis", "κ of judges and humans", plainTable("judges-axis",
    `${kappaName()} of each judge with the humans of the item, and of each human with the others, from ${decimal(low, 1)} to 1. Shaded: 95 % interval of a human.${shown}`,
    [["Annotator"], ["Kind", "minor"], ["κ", "number"], ["Axis"], ["Items", "number minor"]], lines));
}

function confusionOf(judge) {
  const j = names_.indexOf(judge);
  const names = judges.used.map((p) => classes[p]);
  const lines = judges.confusion[j].map((row, p) => h("tr", {}, h("th", { scope: "row" }, classLabel(judges.used[p])), ...row.map((share, a) => {
    const usual = judges.among_humans[j][p][a];
    return share === null ? h("td", {}, "–") : paint(h("td", {}, `${(100 * share).toFixed(0)} (${usual === null ? "–" : (100 * usual).toFixed(0)})`), share);
  })));
  return offered("judges-confusion", "Shares of the judge’s answers", h("table", { class: "heat", id: "judges-confusion" },
    h("caption", {}, "If a human gives the answer of the row, how often the judge gives that of the column, in per cent; in brackets, how often another human does."),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "A human answers"), ...names.map((name) => h("th", { scope: "col" }, ...breakable(name))))),
    h("tbody", {}, ...lines)));
}

// A list of judges that selects what is shown below it.
function byJudge(id, choices, make) {
  const body = h("div", {}, make(choices[0][0]));
  const select = h("select", { id, onchange: (event) => body.replaceChildren(make(event.target.value)) },
    ...choices.map(([value, title]) => h("option", { value }, title)));
  return h("div", {}, h("div", { class: "tools" }, h("label", { for: id }, "Judge", select)), body);
}

function togetherTable() {
  const { correlation } = judges.panel;
  const lines = correlation.map((row, i) => h("tr", {}, h("th", { scope: "row" }, ...breakable(names_[i])),
    ...row.map((value, j) => (i === j ? h("td", {}, "–") : paint(h("td", {}, decimal(value, 2)), Math.max(value, 0))))));
  return offered("judges-together", "Correlation of judges",
    h("table", { class: "heat", id: "judges-together" },
      h("caption", {}, "Correlation of two judges’ answers given the human labels: 0 for independent judges, 1 for copies."),
      h("thead", {}, h("tr", {}, h("td"), ...names_.map((name) => h("th", { scope: "col" }, ...breakable(name))))),
      h("tbody", {}, ...lines)));
}

function wrongList(judge) {
  const found = judges.wrong_items.filter((one) => one.judge === judge).slice(0, 12);
  return h("div", {}, found.length ? null : h("p", {}, "None: the most common human answer is the judge’s on every item."), ...found.flatMap((one) => [
    h("p", { class: "note" }, `‘${one.answer}’, the answer of an estimated ${percent(one.share_as_judge, 1)} of humans. `
      + `The most common human answer is ‘${one.human_answer}’ (${whole(one.n_human_labels)} labels):`),
    quote(items.id.indexOf(String(one.item)))]));
}

// Rates of items without human labels: for others there is nothing to correct.
function correctedRates() {
  return judges.rates.filter((row) => row.n_items > row.n_human_items);
}

function rateTable() {
  const names = ["ppi", "rogan_gladen", "humans_alone"];
  const lines = correctedRates().map((row) => h("tr", {}, h("th", { scope: "row" }, row.judge), h("td", {}, row.group || "all"), h("td", {}, row.class),
    h("td", { class: "number" }, decimal(row.judge_share, 3)),
    ...names.map((name) => h("td", { class: "number" }, spread(row[name], row[`${name}_low`], row[`${name}_high`], 3))), h("td", {}, row.refused)));
  const heads = [["Judge"], ["Items"], ["Class"], ["Judge’s share", "number"], ["PPI++", "number"], ["Rogan–Gladen", "number"], ["Humans alone", "number"], ["Remark"]];
  return offered("judges-rates", "Shares of the classes", plainTable("judges-rates",
    "Share of each class that humans would give over all items that the judge labelled, estimated from its labels and those of the humans, with 95 % intervals.", heads, lines));
}

// The parts of the comparison, each with an id, a title, a lead and its content.
function judgeParts() {
  const each = names_.map((name) => [name, name]);
  const list = (lines) => (lines.length ? h("ul", {}, ...lines.map((line) => h("li", {}, line))) : null);
  return [
    ["judges", "Judges", judges.says, [judgeTable(), list(judges.drifts.map((drift) => drift.words))]],
    ["agreement", "Agreement", "Where humans disagree, 1 is out of reach: compare with the humans.", [axisTable()]],
    judges.used.length && ["confusion", "Confusion", "Answers of a judge and of the humans to the same items.", [byJudge("confusion-judge", each, confusionOf)]],
    judges.wrong_items.length && ["errors", "Likely errors",
      "Items on which the fewest humans are expected to agree with the judge. Humans are the reference here; where all judges agree on another answer, the human labels may be wrong.",
      [byJudge("errors-judge", each, wrongList)]],
    judges.panel && ["together", "Joint errors", judges.panel.says, [togetherTable()]],
    judges.biases.length && ["biases", "Biases", "By the length of the text, by position and for the own family, beyond those of the humans on the same items (95 % intervals).",
      [list(judges.biases.map((bias) => `${bias.judge}: ${bias.words}`))]],
    correctedRates().length && ["rates", "Corrected rates", "Humans labelled only some of the items.", [rateTable()]],
    ["replacement", "Tests", judges.terms, [testTable()]],
  ].filter(Boolean);
}

function testTable() {
  const lines = judges.judges.map((row) => h("tr", {}, h("th", { scope: "row" }, ...breakable(row.judge)),
    h("td", { class: "number" }, decimal(row.winning_rate, 2)), h("td", { class: "number" }, decimal(row.advantage, 2)),
    h("td", { class: "number" }, `${whole(row.n_humans)} of ${whole(row.n_humans + row.n_humans_left_out)}`),
    h("td", { class: "number" }, spread(row.pooled_difference, row.pooled_low, row.pooled_high, 3)), h("td", {}, row.settled_by),
    h("td", {}, `${percent(row.agreement)} with the judge, ${percent(row.human_agreement)} with a human`)));
  return offered("judges-tests", "Replacement tests", plainTable("judges-tests", null, [["Judge"], ["Winning rate", "number"], ["Advantage", "number"],
    ["Humans tested", "number"], ["Pooled difference", "number"], ["Further labels"], ["Agreement of humans"]], lines));
}

// One section of a run's report, in which the first part is open.
function showJudges() {
  if (!judges) return;
  const [[id, title, lead, first], ...rest] = judgeParts();
  section(id, title, lead, ...first, ...rest.map(([part, name, words, content]) => fold(name, () => [words ? h("p", { class: "lead" }, words) : null, ...content], `judges-${part}`)));
}
