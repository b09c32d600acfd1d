// Items: one table with several presets.

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

// Number of labels of each class for an item.
function labelCounts(i) {
  if (!data.rows.size) return data.rows.counts.slice(i * P, (i + 1) * P);
  const counts = new Array(P).fill(0);
  for (let row = rowStarts[i]; row < rowStarts[i + 1]; row += 1) counts[data.rows.label[row]] += 1;
  return counts;
}

const MOVES = 50; // thousandths by which another run moves the shares of an item that is marked
const MOST_CONFUSED = 12; // classes in the picture of confusions

function movesWords(i) {
  return `Chains of the model disagree on this item: another run would move its shares by about ${decimal(items.moves[i] / 10, 0)} percentage points.`;
}

function subject(i) {
  const text = items.text ? items.text[i] : "";
  if (!text) return h("span", { class: "clamp" }, items.id[i]);
  return h("span", {}, h("span", { class: "clamp" }, text), h("span", { class: "id" }, items.id[i]));
}

function top(i) {
  return items.p[i * P + items.label[i]];
}

function intervalWords(i) {
  const ends = [items.low[i], items.high[i]].map((end) => percent(end / 1000));
  return `Between ${ends[0]} and ${ends[1]} of the population would answer ‘${classes[items.label[i]]}’ (90 % ${data.intervals === "sampled" ? "credible interval" : "interval, approximate"}); `
    + `it is the most common answer with probability ${percent(items.p_top[i])}. `
    + `One more label would narrow the interval by about ${decimal(items.next[i] / 10, 1)} percentage points.`;
}

// Names of the annotators who chose a class.
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
  const heads = [["Answer"], ["Labels", "number"], ["Population", "number"], ...(named ? [["Annotators"]] : [])];
  const gold = items.gold && items.gold[i] >= 0 ? h("p", {}, "Gold: ", classLabel(items.gold[i])) : null;
  return h("div", {},
    items.text && items.text[i] ? fullText(items.text[i]) : null, gold,
    reasons.has(i) ? h("p", {}, h("strong", {}, "Label differs from majority: "), reasons.get(i)) : null,
    scrolled(`Labels of ${items.id[i]}`, plainTable(null, null, heads, lines)),
    items.p_top ? h("p", { class: "note" }, intervalWords(i)) : null,
    items.moves && items.moves[i] >= MOVES ? h("p", { class: "note" }, movesWords(i)) : null,
    items.cluster ? h("p", { class: "note" }, `${clusterName(items.cluster[i])}: ${clusters.items[items.cluster[i]].words}.`) : null);
}

function intervalCell(i) {
  return h("span", {}, percent(top(i) / 1000), h("span", { class: "interval" }, ` ${percent(items.low[i] / 1000).replace(" %", "")}–${percent(items.high[i] / 1000)}`));
}

function labelCell(i) {
  const mark = has(i, "overturned") ? h("span", { class: "mark", title: "The model’s label differs from the most frequent label" }, "↺") : null;
  const wrong = has(i, "wrong") ? h("span", { class: "mark bad", title: `Gold: ${classes[items.gold[i]]}` }, "≠ gold") : null;
  const unstable = items.moves && items.moves[i] >= MOVES ? h("span", { class: "mark", title: movesWords(i) }, "≈") : null;
  return h("span", {}, classLabel(items.label[i]), mark, wrong, unstable);
}

function itemColumns() {
  return [
    { key: "item", title: items.text ? "Text" : "Item", value: (i) => items.id[i], cell: subject, wide: "subject" },
    { key: "label", title: "Label", minor: true, value: (i) => classes[items.label[i]], cell: labelCell,
      help: data.true_classes ? "Most probable true class according to the model" : "Most common answer in the population according to the model" },
    { key: "distribution", title: "Population", wide: "spread", help: "Distribution of answers in the population according to the model. Click to sort by the share of the label",
      value: (i) => top(i), csv: (i) => top(i) / 1000,
      cell: (i) => h("div", {}, h("span", { class: "only-narrow" }, labelCell(i)), bar(shares(i), "Population")) },
    items.p_top && { key: "share", title: "Share (90 % interval)", help: "Share of the label in the population, and its 90 % interval. Click to sort by the width of the interval", number: true, minor: true,
      value: (i) => items.high[i] - items.low[i], cell: intervalCell, csv: (i) => `${items.low[i] / 1000} to ${items.high[i] / 1000}` },
    { key: "agreed", title: "Agreement", help: "Share of the item's labels with the most frequent answer", number: true, minor: true,
      value: (i) => items.agreed[i], csv: (i) => items.agreed[i] / 1000, cell: (i) => (items.n[i] ? percent(items.agreed[i] / 1000) : "–") },
    { key: "labels", title: "Labels", help: "Number of labels of the item", number: true, minor: true, value: (i) => items.n[i],
      cell: (i) => whole(items.n[i]) },
    items.next && { key: "next", title: "Narrowing", help: "Percentage points by which one more label is expected to narrow the 90 % interval", number: true, minor: true,
      value: (i) => items.next[i], csv: (i) => items.next[i] / 1000, cell: (i) => decimal(items.next[i] / 10, 1) },
  ].filter(Boolean);
}

// Additional columns of the CSV file.
function fileColumns() {
  return [items.p_top && !classes.includes("top") && { key: "p_top", value: (i) => items.p_top[i] },
    { key: "most_frequent", value: (i) => (items.most[i] < 0 ? "" : classes[items.most[i]]) },
    items.gold && { key: "gold", value: (i) => (items.gold[i] < 0 ? "" : classes[items.gold[i]]) },
    items.cluster && { key: "cluster", value: (i) => items.cluster[i] + 1 },
    ...classes.map((name, p) => ({ key: `p_${name}`, value: (i) => items.p[i * P + p] / 1000 })),
    items.text && { key: "text", value: (i) => items.text[i] },
    { key: "urgency", hidden: true, value: urgency }].filter(Boolean);
}

// Order of the table: items to adjudicate, then those that need labels, then others; unsure labels first.
function urgency(i) {
  const rank = ["adjudicate", "wrong", "more", "overturned"].findIndex((flag) => has(i, flag));
  return (rank < 0 ? 4 : rank) + (items.p_top ? items.p_top[i] / 2 : items.agreed[i] / 2000);
}

function itemPresets() {
  const shareWords = data.true_classes ? "a probability" : "a share in the population";
  const n = (flag) => whole(flagged(flag));
  const contested = items.flags.filter((flags) => !(flags & FLAGS.clear_model)).length;
  return [
    { key: "all", title: "All", sort: "urgency" },
    { key: "adjudicate", title: `To adjudicate (${n("adjudicate")})`, keep: (i) => has(i, "adjudicate"), sort: "labels", down: true,
      words: `Among the labels, the two most frequent answers are at most 20 percentage points apart${items.p_top ? ", and the model is unsure which is more common" : ""}. Have an expert decide, or keep both answers.` },
    { key: "more", title: `Need labels (${n("more")})`, keep: (i) => has(i, "more"), sort: items.next ? "next" : "labels", down: Boolean(items.next),
      words: items.p_top ? "The probability that the label is the population’s most common answer is below 90 %. Items to adjudicate are not listed here. Sorted by the expected narrowing of the interval by one more label."
        : "Items with far fewer labels than usual." },
    { key: "contested", title: `No clear answer (${whole(contested)})`, keep: (i) => !has(i, "clear_model"), sort: "distribution",
      words: `According to the model, no class has ${shareWords} of two thirds; the most divided items first.` },
    { key: "overturned", title: `Label differs from majority (${n("overturned")})`, keep: (i) => has(i, "overturned"), sort: "distribution", down: true,
      words: "The model's label is not the most frequent one. Open an item to see the reason." },
    items.gold && { key: "wrong", title: `Differs from gold (${n("wrong")})`, keep: (i) => has(i, "wrong"), sort: "distribution", down: true,
      words: "The model's label is not the gold label; the most certain first. Some of these may be errors in the gold labels." },
    { key: "clear_raw", title: `Clear in the raw labels (${n("clear_raw")})`, quiet: true, keep: (i) => has(i, "clear_raw"),
      words: "At least two thirds of the raw labels agree." },
    { key: "clear_model", title: `Clear according to the model (${n("clear_model")})`, quiet: true, keep: (i) => has(i, "clear_model"),
      words: `According to the model, one class has ${shareWords} of at least two thirds.` },
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
    items.cluster && { title: "Cluster", choices: clusters.items.map((_, k) => [String(k), clusters.true_classes ? classes[k] : String(k + 1)]),
      keep: (value) => (i) => items.cluster[i] === Number(value) },
    data.annotators && data.rows.size && { title: "Annotator", many: true, choices: data.annotators.id.map((id) => [id]), keep: itemsOf },
  ].filter(Boolean);
}

const itemTable = new DataTable({
  id: "items-table", caption: "Items", columns: itemColumns(), more: fileColumns(), size: M, detail: itemDetail,
  presets: itemPresets(), filters: itemFilters(), text: (i) => (items.text ? `${items.id[i]} ${items.text[i]}` : items.id[i]),
  command: data.run && ((preset) => (preset.key === "adjudicate" || preset.key === "more" || preset.key === "contested"
    ? `dissensus plan ${shell(data.run)} -o to-label.csv` : `dissensus report ${shell(data.run)}`)),
});

function quote(i) {
  const open = (event) => {
    event.preventDefault();
    itemTable.reveal(i);
  };
  return h("blockquote", {}, h("a", { href: "#items", class: "clamp", onclick: open }, itemText(i) || items.id[i]));
}

function agreementBins() {
  // the most frequent of P answers has a share of at least 1 / P
  const bins = Array.from({ length: 10 }, (_, b) => {
    const low = Math.max(10 * b + 1, Math.round(100 / P));
    const short = `${10 * b + 10} %`;
    return { title: `${low < 10 * b + 10 ? `${low}–` : ""}${short} agree`, short, n: 0 };
  });
  for (let i = 0; i < M; i += 1) if (items.n[i] > 1) bins[Math.max(0, Math.ceil(Math.round(items.agreed[i] / 10) / 10) - 1)].n += 1;
  return bins.slice(bins.findIndex((bin) => bin.n) < 0 ? 0 : bins.findIndex((bin) => bin.n));
}

function sizeBins() {
  const most = items.n.reduce((a, b) => Math.max(a, b), 0);
  const least = items.n.reduce((a, b) => Math.min(a, b), most);
  const step = Math.max(1, Math.ceil((most - least + 1) / 15));
  const bins = Array.from({ length: Math.floor((most - least) / step) + 1 }, (_, b) => {
    const first = least + b * step;
    return { title: step > 1 ? `${first}–${first + step - 1} labels` : `${first} label${first === 1 ? "" : "s"}`, short: String(first), n: 0 };
  });
  for (const n of items.n) bins[Math.floor((n - least) / step)].n += 1;
  return bins;
}

// Answers of two annotators of the same item, for the classes with most disagreements.
function confusedClasses() {
  const { confused } = data.data;
  if (!confused) return null;
  const others = confused.map((row, p) => row.reduce((sum, n, q) => sum + (p === q ? 0 : n), 0));
  const chosen = classes.map((_, p) => p).filter((p) => confused[p].some(Boolean))
    .sort((p, q) => others[q] - others[p]).slice(0, MOST_CONFUSED).sort((p, q) => p - q);
  const lines = chosen.map((p) => {
    const total = confused[p].reduce((sum, n) => sum + n, 0);
    return h("tr", {}, h("th", { scope: "row" }, classLabel(p)), ...chosen.map((q) => {
      const cell = paint(h("td", {}, (100 * confused[p][q] / total).toFixed(0)), confused[p][q] / total);
      if (p === q) cell.classList.add("same");
      return cell;
    }));
  });
  const part = chosen.length < P ? ` Shown are the ${chosen.length} classes with most disagreements.` : "";
  const table = h("table", { class: "heat" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "One answers"), ...chosen.map((p) => h("th", { scope: "col" }, ...breakable(classes[p]))))),
    h("tbody", {}, ...lines));
  return h("figure", { class: "histogram", id: "confused" }, h("figcaption", {}, "Answers confused with one another"), scrolled("Answers confused with one another", table),
    h("p", { class: "note" }, `If one annotator of an item gives the answer of the row, how often another gives that of the column, in per cent.${part}`));
}

function showItems() {
  const [, low, median, high] = data.data.per_item;
  const two = data.true_classes
    ? " The label is the most probable true class, and the distribution gives the probability of each class." : "";
  section("items", "Items", `Open a row to see the labels of the item.${two}`,
    h("div", { class: "histograms" },
      histogram("Agreement on an item", agreementBins(), `Share of the labels with the most frequent answer; ${percent(data.data.unanimous)} of the items with two or more labels are unanimous.`),
      low === high && !data.data.n_unlabelled
        ? h("p", { class: "note" }, `Every item has ${whole(low)} label${low === 1 ? "" : "s"}.`)
        : histogram("Labels per item", sizeBins(), `Median ${median}, range ${whole(low)} to ${whole(high)}.`),
      ...[confusedClasses()].filter(Boolean)),
    legend(), itemTable.element);
}
