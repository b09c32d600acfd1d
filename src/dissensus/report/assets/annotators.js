// Annotators: verdicts with their evidence, pairwise agreement, and agreement by column.

const VERDICTS = { spam: "spam", "systematic error": "error", differs: "differs", "minority view": "minority", "cannot tell": "few", typical: "typical" };
const SIGNS = { spam: "✕ ", "minority view": "◆ ", "systematic error": "≠ ", differs: "↓ ", typical: "✓ ", "cannot tell": "… " };
const people = data.annotators;

let labelsOf = null;

function labelsByAnnotator() {
  if (labelsOf) return labelsOf;
  labelsOf = people.id.map(() => []);
  for (let i = 0; i < M; i += 1) {
    for (let row = rowStarts[i]; row < rowStarts[i + 1]; row += 1) labelsOf[data.rows.who[row]].push([i, data.rows.label[row]]);
  }
  return labelsOf;
}

function verdictTag(n) {
  if (!people.verdict) return people.check[n] ? h("span", { class: "tag differs" }, "↓ differs") : "";
  const verdict = people.verdict[n];
  if (verdict === "cannot tell" && people.check[n]) return h("span", { class: "tag differs" }, "↓ differs, cannot tell why");
  return h("span", { class: `tag ${VERDICTS[verdict] || ""}` }, (SIGNS[verdict] || "") + verdict);
}

function sentenceOf(words) {
  return words ? `${words[0].toUpperCase()}${words.slice(1)}.` : "";
}

// Confusion with the population: sums over the annotator's labels of the population's shares.
function confusion(n) {
  const table = Array.from({ length: P }, () => new Array(P).fill(0));
  for (const [i, label] of labelsByAnnotator()[n]) for (let k = 0; k < P; k += 1) table[k][label] += items.p[i * P + k] / 1000;
  const lines = table.map((row, k) => {
    const total = row.reduce((sum, value) => sum + value, 0);
    return total < 0.5 ? null : h("tr", {}, h("th", { scope: "row" }, classLabel(k)),
      ...row.map((value) => paint(h("td", {}, (100 * value / total).toFixed(0)), value / total)),
      h("td", { class: "total" }, total.toFixed(0)));
  }).filter(Boolean);
  return h("div", {}, h("h3", { class: "small" }, `Rows: ${data.true_classes ? "the true class" : "the population’s answer"} according to the model (a label counts in every row, in proportion to the item’s ${data.true_classes ? "probabilities" : "estimated shares"}). Columns: this annotator’s answer, in per cent of the row. Last column: number of labels in the row`),
    scrolled("Confusion with the population", h("table", { class: "heat" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Population"), ...classes.map((name) => h("th", { scope: "col" }, ...breakable(name))),
        h("th", { scope: "col" }, "Labels"))), h("tbody", {}, ...lines))));
}

function annotatorDetail(n) {
  const group = people.group && people.group[n] >= 0 ? ` Group: ${groups[people.group[n]].name}.` : "";
  const chance = people.probability && people.probability[n] !== null
    ? ` Probability of the verdict: ${percent(people.probability[n])}.` : "";
  const detail = h("div", {}, h("p", {}, `${sentenceOf(people.evidence[n])}${chance}${group}`));
  if (!data.rows.size) return detail;
  const own = new Array(P).fill(0);
  const usual = new Array(P).fill(0);
  const odd = [];
  for (const [i, label] of labelsByAnnotator()[n]) {
    own[label] += 1;
    for (let p = 0; p < P; p += 1) usual[p] += items.p[i * P + p];
    odd.push([items.p[i * P + label], i, label]);
  }
  detail.append(h("div", { class: "pair" }, "Annotator", bar(own, "Labels of the annotator"),
    "Population", bar(usual, "Answers of the population to the same items")));
  if (P <= 20 && own.reduce((sum, k) => sum + k) >= P) detail.append(confusion(n));
  odd.sort((a, b) => a[0] - b[0]);
  const unusual = odd.filter((one) => one[0] < 300).slice(0, 3);
  if (unusual.length) detail.append(h("h3", { class: "small" }, "Most unusual labels"));
  for (const [share, i, label] of unusual) {
    detail.append(h("p", { class: "note" }, `Answered ‘${classes[label]}’ (${data.true_classes ? "probability of this class" : "estimated share in the population"}: ${percent(share / 1000)}):`),
      quote(i));
  }
  return detail;
}

// A dot with its interval on a line from 0 to 100 %.
function dotted(share, reach) {
  const line = svg("svg", { viewBox: "0 0 100 10", class: "dot", "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 5, x2: 100, y2: 5, class: "axis" }),
    svg("line", { x1: Math.max(0, 100 * (share - reach)), x2: Math.min(100, 100 * (share + reach)), y1: 5, y2: 5, class: "reach" }),
    svg("circle", { cx: 100 * share, cy: 5, r: 3.2 }));
  return h("span", { class: "dotted-cell" }, h("span", { class: "figure-text" }, percent(share)), line);
}

function rank(n) {
  const order = Object.keys(VERDICTS);
  return (people.check[n] ? 0 : 10) + (people.verdict ? order.indexOf(people.verdict[n]) : 0);
}

function annotatorColumns() {
  return [
    { key: "annotator", title: "Annotator", value: (n) => people.id[n], cell: (n) => h("span", {}, people.id[n]) },
    { key: "verdict", title: people.verdict ? "Verdict" : "To check", value: (n) => 1e6 * rank(n) + 1000 * (people.agreement[n] === null ? 1 : people.agreement[n]),
      csv: (n) => (people.verdict ? people.verdict[n] : people.check[n] ? "check" : ""), cell: verdictTag, help: "Sorted by severity" },
    { key: "agreement", title: "Agreement", number: true, value: (n) => people.agreement[n],
      help: "Probability that another annotator of the same item gives the same label as this one, with a 95 % interval",
      cell: (n) => (people.agreement[n] === null ? "–" : dotted(people.agreement[n], people.reach[n])) },
    { key: "usual", title: "Others", number: true, minor: true, value: (n) => people.usual[n],
      help: "Probability that two others agree on the same items", cell: (n) => (people.usual[n] === null ? "–" : percent(people.usual[n])) },
    { key: "labels", title: "Labels", number: true, minor: true, value: (n) => people.n[n], cell: (n) => whole(people.n[n]) },
    people.again && { key: "self_consistency", title: "Consistency", number: true, minor: true, value: (n) => people.alike[n],
      help: "Probability that two labels of the annotator for the same item agree, and the number of repeated items",
      cell: (n) => (people.again[n] ? `${percent(people.alike[n])} of ${whole(people.again[n])}` : "–") },
    people.gold_n && { key: "gold", title: "Accuracy (gold)", number: true, minor: true, value: (n) => (people.gold_n[n] ? people.gold_right[n] / people.gold_n[n] : null),
      help: "Share of correct labels among items with a gold label, with a 95 % interval",
      cell: (n) => (people.gold_n[n] ? h("span", {}, `${percent(people.gold_right[n] / people.gold_n[n])} of ${whole(people.gold_n[n])}`,
        h("span", { class: "interval" }, ` ${(100 * people.gold_low[n]).toFixed(0)}–${percent(people.gold_high[n])}`)) : "–") },
    people.group && { key: "group", title: "Group", minor: true, value: (n) => (people.group[n] < 0 ? "" : groups[people.group[n]].name),
      cell: (n) => (people.group[n] < 0 ? "–" : groups[people.group[n]].name) },
  ].filter(Boolean);
}

// Additional columns of the CSV file.
function annotatorFile() {
  const plain = ["reach", "gap", "probability", "again", "gold_n", "gold_right", "gold_low", "gold_high"].filter((key) => people[key]);
  const extra = (n) => people.n[n] * (people.gap[n] === null ? 1 : Math.max(0, -people.gap[n]));
  return [{ key: "evidence", value: (n) => people.evidence[n] }, { key: "disagreements", hidden: true, value: extra }, ...plain.map((key) => ({ key, value: (n) => people[key][n] }))];
}

function annotatorPresets() {
  const count = (keep) => people.id.reduce((sum, _, n) => sum + keep(n), 0);
  const words = {
    spam: "The labels do not depend on the items, as if chosen at random. Read the evidence, and exclude them.",
    "minority view": "Members of a smaller group that answers differently on the same items: another view, not carelessness. Keep the labels.",
    "systematic error": "The labels exchange classes. Ask whether the task was misunderstood, or keys were swapped.",
    differs: "They agree clearly less with the others than two others do on the same items, and no other verdict explains it. Talk to them.",
    typical: "Nothing in the labels speaks against these annotators.",
    "cannot tell": "The labels do not show enough for a verdict; the evidence says how many are usually enough.",
  };
  const some = people.verdict ? Object.keys(VERDICTS).filter((verdict) => people.verdict.includes(verdict)) : [];
  return [{ key: "all", title: "All", sort: "verdict" },
    { key: "check", title: `To talk to first (${whole(count((n) => people.check[n]))})`, keep: (n) => people.check[n] === 1, sort: "disagreements", down: true,
      words: `They agree clearly less with the others than two others do on the same items${people.verdict ? ", or their labels are spam or a systematic error" : ""}. Read the evidence before excluding anyone. Sorted by disagreements beyond the usual.` },
    ...some.map((verdict) => ({ key: verdict, title: `${SIGNS[verdict]}${verdict} (${whole(count((n) => people.verdict[n] === verdict))})`,
      words: words[verdict], sort: "labels", down: true, keep: (n) => people.verdict[n] === verdict }))];
}

function annotatorFilters() {
  return [people.group && groups.length ? { title: "Group", choices: groups.map((group, g) => [String(g), group.name]),
    keep: (value) => (n) => people.group[n] === Number(value) } : null].filter(Boolean);
}

function savePairs() {
  const { who, share, shared } = data.heat;
  const n = who.length;
  const rows = who.flatMap((one, a) => who.map((other, b) => [people.id[one], people.id[other], share[a * n + b] / 100, shared[a * n + b]])
    .filter((row, b) => b > a && row[2] >= 0));
  download("pairs", [["annotator", "other", "agreement", "items"], ...rows]);
}

// Matrix of pairwise agreement, ordered by group.
function heatMatrix() {
  const { who, share, shared } = data.heat;
  const n = who.length;
  const size = Math.max(6, Math.min(24, 640 / n));
  const cells = [];
  for (let a = 0; a < n; a += 1) {
    for (let b = 0; b < n; b += 1) {
      const value = share[a * n + b];
      if (a === b || value < 0) continue;
      const cell = svg("rect", { x: b * size, y: a * size, width: size - 1, height: size - 1 },
        svg("title", {}, `${people.id[who[a]]} and ${people.id[who[b]]}: ${value} % of ${whole(shared[a * n + b])} items`));
      cell.style.fill = `rgb(${along(scaleOf("much"), value / 100).join(",")})`;
      cells.push(cell);
    }
  }
  const left = 90;
  const names = size >= 10 ? who.map((one, a) => svg("text", { x: left - 6, y: a * size + size * 0.7, "text-anchor": "end" },
    people.id[one].length > 12 ? `${people.id[one].slice(0, 11)}…` : people.id[one])) : [];
  const found = who.flatMap((_, a) => who.map((__, b) => share[a * n + b]).filter((value, b) => b !== a && value >= 0));
  const [low, high] = [Math.min(...found), Math.max(...found)];
  const said = found.length ? `Agreement ranges from ${low} % to ${high} %.` : "No two annotators share enough items.";
  const sampled = people.id.length > n ? ` Shown are the ${n} of ${whole(people.id.length)} annotators with the most labels.` : "";
  return [h("p", { class: "note" }, `Agreement of two annotators on the items that both labelled${groups.length ? ", ordered by group" : ""}: the ${dark.matches ? "lighter" : "darker"} a cell, the more often the two annotators agree. ${said}${sampled} Blank cells: fewer than three shared items.`),
    svg("svg", { viewBox: `0 0 ${left + n * size} ${n * size}`, class: "matrix", role: "img", id: "agreement-matrix",
      "aria-label": `Pairwise agreement of ${n} annotators. ${said}` }, ...names, svg("g", { transform: `translate(${left} 0)` }, ...cells)),
    h("button", { type: "button", class: "take", onclick: savePairs }, "Download CSV")];
}

function columnTable(column) {
  const heads = [[column.name], ["Annotators", "number minor"], ["Labels", "number minor"], ["Agreement within", "number"], ["With others", "number"],
    ["Labels, and others’ labels of the same items"]];
  const lines = column.values.map((value, v) => {
    const side = column.sides[v];
    const sure = side.gap[1] > 0;
    return h("tr", {}, h("th", { scope: "row" }, value), h("td", { class: "number minor" }, whole(side.n)), h("td", { class: "number minor" }, percent(side.labels)),
      h("td", { class: sure ? "number own" : "number" }, percent(side.within)), h("td", { class: "number" }, percent(side.between)),
      h("td", { class: "spread" }, bar(side.own, "Labels"), bar(side.usual, "Labels of others"), side.words ? h("p", { class: "note" }, side.words) : null));
  });
  return [h("h4", {}, column.name), column.explained ? h("p", {}, column.explained) : null, column.words ? h("p", {}, column.words) : null,
    offered(`by-${column.name}`, column.name, plainTable(null, null, heads, lines))];
}

function columnPart() {
  if (!data.columns.length) return null;
  const place = h("div");
  const select = h("select", { id: "column-choice", onchange: (event) => place.replaceChildren(...columnTable(data.columns[Number(event.target.value)]).filter(Boolean)) },
    ...data.columns.map((column, c) => h("option", { value: String(c) }, column.name)));
  place.append(...columnTable(data.columns[0]).filter(Boolean));
  return h("div", { id: "columns" }, h("h3", {}, "By annotator column"),
    h("p", { class: "note" }, "Annotators with the same value form a group if they agree with one another more than with others (bold: significantly more)."),
    data.columns.length > 1 ? h("div", { class: "tools" }, h("label", { for: select.id }, "Column", select)) : null, legend(), place);
}

function showAnnotators() {
  if (!people) return;
  const table = new DataTable({ id: "annotators-table", caption: "Annotators", columns: annotatorColumns(),
    more: annotatorFile(), size: people.id.length, detail: annotatorDetail,
    presets: annotatorPresets(), filters: annotatorFilters(), text: (n) => people.id[n], pageSize: 10,
    command: data.run && (() => `dissensus annotators ${shell(data.run)} -o annotators.csv`) });
  section("annotators", "Annotators",
    people.verdict
      ? "Agreement is that with another annotator of the same item; ‘others’ is the agreement of two others on the same items. Open a row to see the evidence."
      : "This model gives no verdicts on annotators. The default model distinguishes spam from minority views.",
    table.element,
    data.heat ? fold("Pairwise agreement", heatMatrix, "matrix") : null, columnPart());
}
