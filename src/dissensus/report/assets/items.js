// Items: one table, looked at in several ways.

const rowStarts = [0];
if (data.rows.size) for (const size of data.rows.size) rowStarts.push(rowStarts[rowStarts.length - 1] + size);
const reasons = new Map(data.overturned.map((one) => [one.item, one.why]));
const FLAGS = { clear_raw: 1, clear_model: 2, adjudicate: 4, more: 8, overturned: 16, wrong: 32 };

function has(i, flag) {
  return (items.flags[i] & FLAGS[flag]) > 0;
}

function flagged(flag) {
  return items.flags.reduce((sum, flags) => sum + ((flags & FLAGS[flag]) > 0), 0);
}

// How often each class was given to an item.
function labelCounts(i) {
  if (!data.rows.size) return data.rows.counts.slice(i * P, (i + 1) * P);
  const counts = new Array(P).fill(0);
  for (let row = rowStarts[i]; row < rowStarts[i + 1]; row += 1) counts[data.rows.label[row]] += 1;
  return counts;
}

function subject(i) {
  const text = items.text ? items.text[i] : "";
  if (!text) return h("span", { class: "clamp" }, items.id[i]);
  return h("span", {}, h("span", { class: "clamp" }, text), h("span", { class: "id" }, items.id[i]));
}

function top(i) {
  return items.p[i * P + items.label[i]];
}

function sureWords(i) {
  const ends = [items.low[i], items.high[i]].map((end) => percent(end / 1000));
  return `Of the population, between ${ends[0]} and ${ends[1]} would answer ‘${classes[items.label[i]]}’ (90 % interval, ${data.intervals}); `
    + `it is the most common answer with probability ${percent(items.sure[i])}. `
    + `One more label would narrow the interval by ${decimal(items.next[i] / 10, 1)} points.`;
}

// Who said what, by name.
function whoSaid(i, p) {
  const names = [];
  for (let row = rowStarts[i]; row < rowStarts[i + 1]; row += 1) {
    if (data.rows.label[row] === p) names.push(data.annotators.id[data.rows.who[row]]);
  }
  const times = new Map();
  for (const name of names) times.set(name, (times.get(name) || 0) + 1);
  return [...times].map(([name, n]) => (n > 1 ? `${name} (${n} times)` : name));
}

function itemDetail(i) {
  const given = labelCounts(i);
  const named = data.rows.size && data.annotators;
  const order = classes.map((_, p) => p).filter((p) => items.p[i * P + p] >= 5 || given[p])
    .sort((a, b) => (data.ordered ? a - b : given[b] - given[a] || items.p[i * P + b] - items.p[i * P + a]));
  const lines = order.map((p) => h("tr", {}, h("th", { scope: "row" }, classLabel(p)),
    h("td", { class: "number" }, whole(given[p])), h("td", { class: "number" }, percent(items.p[i * P + p] / 1000)),
    named ? h("td", { class: "who" }, whoSaid(i, p).join(", ")) : null));
  const heads = [["Answer"], ["Labels", "number"], ["Population", "number"], ...(named ? [["Who said it"]] : [])];
  const gold = items.gold && items.gold[i] >= 0 ? h("p", {}, "Gold: ", classLabel(items.gold[i])) : null;
  return h("div", {},
    items.text && items.text[i] ? h("p", { class: "full" }, items.text[i]) : null, gold,
    reasons.has(i) ? h("p", {}, h("strong", {}, "Why not the most frequent label: "), reasons.get(i)) : null,
    scrolled(`Labels of ${items.id[i]}`, plainTable(null, null, heads, lines)),
    items.sure ? h("p", { class: "note" }, sureWords(i)) : null,
    clusters ? h("p", { class: "note" }, `Labelled like ${clusters.items[items.cluster[i]].words}.`) : null);
}

function intervalCell(i) {
  return h("span", {}, percent(top(i) / 1000), h("span", { class: "interval" }, ` ${percent(items.low[i] / 1000).replace(" %", "")}–${percent(items.high[i] / 1000)}`));
}

function labelCell(i) {
  const mark = has(i, "overturned") ? h("span", { class: "mark", title: "Not the most frequent label" }, "↺") : null;
  const wrong = has(i, "wrong") ? h("span", { class: "mark bad", title: `Gold: ${classes[items.gold[i]]}` }, "≠ gold") : null;
  return h("span", {}, classLabel(items.label[i]), mark, wrong);
}

function itemColumns() {
  return [
    { key: "item", title: items.text ? "Text" : "Item", value: (i) => items.id[i], cell: subject, wide: "subject" },
    { key: "label", title: "Label", minor: true, value: (i) => classes[items.label[i]], cell: labelCell,
      help: data.true_classes ? "The class that the model holds to be true" : "The population's most common answer, by the model" },
    { key: "distribution", title: "Population", wide: "spread", help: "What the population would answer; sorts by the share of the label",
      value: (i) => top(i), csv: (i) => top(i) / 1000,
      cell: (i) => h("div", {}, h("span", { class: "only-narrow" }, labelCell(i)), bar(shares(i), "Population")) },
    items.sure && { key: "share", title: "Share (90 %)", help: "Share of the label in the population, and its 90 % interval", number: true, minor: true,
      value: (i) => items.high[i] - items.low[i], cell: intervalCell, csv: (i) => `${items.low[i] / 1000} to ${items.high[i] / 1000}` },
    { key: "agreed", title: "Agreed", help: "Share of the item's labels that are the most frequent one", number: true, minor: true,
      value: (i) => items.agreed[i], csv: (i) => items.agreed[i] / 1000, cell: (i) => (items.n[i] ? percent(items.agreed[i] / 1000) : "–") },
    { key: "labels", title: "Labels", help: "How many labels the item has", number: true, minor: true, value: (i) => items.n[i],
      cell: (i) => whole(items.n[i]) },
    items.next && { key: "next", title: "Next label", help: "By how many points one more label would narrow the interval", number: true, minor: true,
      value: (i) => items.next[i], csv: (i) => items.next[i] / 1000, cell: (i) => `−${decimal(items.next[i] / 10, 1)}` },
  ].filter(Boolean);
}

// Columns of the file alone.
function fileColumns() {
  return [items.sure && { key: "sure", value: (i) => items.sure[i] },
    { key: "most_frequent", value: (i) => (items.most[i] < 0 ? "" : classes[items.most[i]]) },
    items.gold && { key: "gold", value: (i) => (items.gold[i] < 0 ? "" : classes[items.gold[i]]) },
    clusters && { key: "cluster", value: (i) => items.cluster[i] + 1 },
    ...classes.map((name, p) => ({ key: `p_${name}`, value: (i) => items.p[i * P + p] / 1000 })),
    items.text && { key: "text", value: (i) => items.text[i] }].filter(Boolean);
}

function itemPresets() {
  const n = (flag) => whole(flagged(flag));
  const contested = items.flags.filter((flags) => !(flags & FLAGS.clear_model)).length;
  return [
    { key: "all", title: "All" },
    { key: "adjudicate", title: `To adjudicate (${n("adjudicate")})`, keep: (i) => has(i, "adjudicate"), sort: "labels", down: true,
      words: "Nearly a draw: the two most frequent answers are at most a fifth of the labels apart, and more labels would hardly tell. Let somebody decide, or keep both." },
    { key: "more", title: `Need a label (${n("more")})`, keep: (i) => has(i, "more"), sort: items.next ? "next" : "labels", down: Boolean(items.next),
      words: items.sure ? "The label is the population's most common answer with a probability below 90 %; where one more label tells most, first."
        : "Items with far fewer labels than the others." },
    { key: "contested", title: `No clear answer (${whole(contested)})`, keep: (i) => !has(i, "clear_model"), sort: "distribution",
      words: "By the model no answer has two thirds of the population; the most divided first." },
    { key: "overturned", title: `Not the most frequent label (${n("overturned")})`, keep: (i) => has(i, "overturned"), sort: "distribution", down: true,
      words: "The model does not give the label that was given most often. Open an item to see why." },
    items.gold && { key: "wrong", title: `Gold differs (${n("wrong")})`, keep: (i) => has(i, "wrong"), sort: "distribution", down: true,
      words: "The model's label is not the gold one; the surest first. Some of these are errors in the gold labels." },
    { key: "clear_raw", title: `Clear as labelled (${n("clear_raw")})`, quiet: true, keep: (i) => has(i, "clear_raw"),
      words: "At least two in three of the labels given are the same." },
    { key: "clear_model", title: `Clear by the model (${n("clear_model")})`, quiet: true, keep: (i) => has(i, "clear_model"),
      words: "By the model at least two in three of the population would give the same answer." },
  ].filter(Boolean);
}

function itemsOf(who) {
  const n = data.annotators.id.indexOf(who);
  if (n < 0) return null;
  const theirs = new Uint8Array(M);
  for (let i = 0; i < M; i += 1) {
    for (let row = rowStarts[i]; row < rowStarts[i + 1]; row += 1) if (data.rows.who[row] === n) theirs[i] = 1;
  }
  return (i) => theirs[i] === 1;
}

function itemFilters() {
  return [
    { title: "Label", choices: classes.map((name, p) => [String(p), name]), keep: (value) => (i) => items.label[i] === Number(value) },
    clusters && { title: "Cluster", choices: clusters.items.map((_, k) => [String(k), clusters.true_classes ? classes[k] : String(k + 1)]),
      keep: (value) => (i) => items.cluster[i] === Number(value) },
    data.annotators && data.rows.size && { title: "Annotator", many: true, choices: data.annotators.id.map((id) => [id]), keep: itemsOf },
  ].filter(Boolean);
}

const itemTable = new DataTable({
  id: "items-table", caption: "Items", columns: itemColumns(), more: fileColumns(), size: M, detail: itemDetail,
  presets: itemPresets(), filters: itemFilters(), text: (i) => (items.text ? `${items.id[i]} ${items.text[i]}` : items.id[i]),
  command: (preset) => (preset.key === "adjudicate" || preset.key === "more" || preset.key === "contested"
    ? `dissensus plan ${runName()} -o to-label.csv` : `dissensus report ${runName()}`),
});

function quote(i) {
  const open = (event) => {
    event.preventDefault();
    itemTable.reveal(i);
  };
  return h("blockquote", {}, h("a", { href: "#items", class: "clamp", onclick: open }, itemText(i) || items.id[i]));
}

function agreementBins() {
  const bins = Array.from({ length: 10 }, (_, b) => ({ title: `${10 * b}–${10 * b + 10} % alike`, short: `${10 * b + 10} %`, n: 0 }));
  for (let i = 0; i < M; i += 1) if (items.n[i] > 1) bins[Math.max(0, Math.min(9, Math.ceil(items.agreed[i] / 100) - 1))].n += 1;
  return bins.slice(bins.findIndex((bin) => bin.n) < 0 ? 0 : bins.findIndex((bin) => bin.n));
}

function sizeBins() {
  const most = items.n.reduce((a, b) => Math.max(a, b), 0);
  const least = items.n.reduce((a, b) => Math.min(a, b), most);
  const step = Math.max(1, Math.ceil((most - least + 1) / 15));
  const bins = Array.from({ length: Math.floor((most - least) / step) + 1 }, (_, b) => {
    const first = least + b * step;
    return { title: step > 1 ? `${first}–${first + step - 1} labels` : `${first} labels`, short: String(first), n: 0 };
  });
  for (const n of items.n) bins[Math.floor((n - least) / step)].n += 1;
  return bins;
}

function showItems() {
  const [, low, median, high] = data.data.per_item;
  const two = data.true_classes
    ? " The label is the class that the model holds to be true; the distribution is how sure it is of each class." : "";
  section("items", "Items", `Click a row to see who said what.${two}`,
    h("div", { class: "histograms" },
      histogram("How much of an item’s labels agree", agreementBins(), `${percent(data.data.unanimous)} of the items with two labels or more are unanimous.`),
      low === high && !data.data.n_unlabelled
        ? h("p", { class: "note" }, `Every item has ${whole(low)} label${low === 1 ? "" : "s"}.`)
        : histogram("Labels per item", sizeBins(), `Median ${median}, from ${whole(low)} to ${whole(high)}.`)),
    legend(), itemTable.element);
}
