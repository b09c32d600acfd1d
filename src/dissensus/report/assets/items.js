// Items: one table, looked at in several ways.

const rowStarts = [0];
if (data.rows.size) for (const size of data.rows.size) rowStarts.push(rowStarts[rowStarts.length - 1] + size);
const reasons = new Map(data.overturned.map((one) => [one.item, one.why]));

// How often each class was given to an item: by all, or by one group of annotators.
function labelCounts(i, group) {
  if (!data.rows.size) return data.rows.counts.slice(i * P, (i + 1) * P);
  const counts = new Array(P).fill(0);
  for (let row = rowStarts[i]; row < rowStarts[i + 1]; row += 1) {
    if (group === undefined || data.annotators.group[data.rows.who[row]] === group) counts[data.rows.label[row]] += 1;
  }
  return counts;
}

function isOverturned(i) {
  return items.majority[i] >= 0 && items.majority[i] !== items.label[i];
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
  return `Of the population, between ${ends[0]} and ${ends[1]} would answer ${classes[items.label[i]]} (90 % interval, ${data.intervals}); `
    + `it is the most common answer with probability ${percent(items.sure[i])}.`;
}

function itemDetail(i) {
  const given = labelCounts(i);
  const parts = data.rows.size && groups.length
    ? groups.map((group, g) => ({ group, counts: labelCounts(i, g) })).filter((one) => one.counts.some(Boolean)) : [];
  const heads = ["Class", "Model", "Labels given", ...parts.slice(0, 8).map((one) => `Group ${one.group.name}`)];
  const order = classes.map((_, p) => p).filter((p) => items.p[i * P + p] >= 5 || given[p])
    .sort((a, b) => items.p[i * P + b] - items.p[i * P + a]);
  const lines = order.map((p) => h("tr", {}, h("th", { scope: "row" }, classLabel(p)),
    h("td", { class: "number" }, percent(items.p[i * P + p] / 1000)), h("td", { class: "number" }, whole(given[p])),
    ...parts.slice(0, 8).map((one) => h("td", { class: "number" }, whole(one.counts[p])))));
  const heading = heads.map((title, place) => h("th", { scope: "col", class: place ? "number" : null }, title));
  return h("div", {},
    h("p", { class: "full" }, itemText(i)),
    reasons.has(i) ? h("p", {}, h("strong", {}, "Why the majority is overturned: "), reasons.get(i)) : null,
    items.sure ? h("p", {}, sureWords(i)) : null,
    clusters ? h("p", { class: "note" }, `Belongs to ${clusters.items[items.cluster[i]].words}.`) : null,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Labels of ${items.id[i]}` },
      h("table", {}, h("thead", {}, h("tr", {}, ...heading)), h("tbody", {}, ...lines))));
}

function itemColumns() {
  const number = (key, title, help, digits) => ({ key, title, help, number: true, minor: true,
    value: (i) => items[key][i], cell: (i) => decimal(items[key][i], digits) });
  return [
    { key: "id", title: items.text ? "Text" : "Item", value: (i) => items.id[i], cell: subject, wide: "subject" },
    { key: "label", title: "Label", minor: true, value: (i) => classes[items.label[i]],
      cell: (i) => classLabel(items.label[i]) },
    { key: "share", title: "Distribution", wide: "spread", help: "What the population would answer; sorts by the share of the label",
      value: (i) => top(i), cell: (i) => h("div", {}, h("span", { class: "only-narrow" }, classLabel(items.label[i])), bar(shares(i), "Distribution")) },
    items.sure && { key: "sure", title: "Sure", help: "Probability that the label is the population's most common answer",
      number: true, minor: true, value: (i) => items.sure[i], cell: (i) => percent(items.sure[i]) },
    number("entropy", "Entropy", "Of the distribution, in nats: 0 is unanimous", 2),
    { ...number("n", "Labels", "How many labels the item has", 0), cell: (i) => whole(items.n[i]) },
    clusters && { key: "cluster", title: "Cluster", help: "Cluster of items: see Groups", number: true, minor: true,
      value: (i) => items.cluster[i], cell: (i) => String(items.cluster[i] + 1) },
    items.divided && number("divided", "Divides", "How much of the disagreement lies between groups of annotators, in nats", 3),
    number("need", "Need", "What one more label is expected to tell, in nats", 3),
  ].filter(Boolean);
}

function itemPresets() {
  const n = data.n_overturned;
  return [
    { title: "All" },
    { title: "Most contested", sort: "entropy", down: true,
      words: "The items on which the population disagrees most, by the entropy of its answers." },
    items.divided && { title: "Divide the groups", sort: "divided", down: true,
      words: "The items on which groups of annotators differ most: how much of the disagreement lies between groups." },
    { title: `Majority overturned (${whole(n)})`, keep: isOverturned, sort: "share", down: true,
      words: n ? "The model does not give the most frequent label. Open an item to see why."
        : "The model gives every item its most frequent label." },
    { title: "Need another label", sort: "need", down: true,
      words: "Where one more label of an average annotator is expected to tell most (in nats)." },
  ].filter(Boolean);
}

const itemTable = new DataTable({
  id: "items-table", caption: "Items", columns: itemColumns(), size: M, detail: itemDetail, presets: itemPresets(),
  text: (i) => (items.text ? `${items.id[i]} ${items.text[i]}` : items.id[i]),
});

function quote(i) {
  const open = (event) => {
    event.preventDefault();
    itemTable.reveal(i);
  };
  return h("blockquote", {}, h("a", { href: "#items", class: "clamp", onclick: open }, itemText(i) || items.id[i]));
}
