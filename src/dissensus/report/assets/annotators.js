// Annotators: how much they labelled, what their labels tell, and a verdict with its evidence.

const VERDICTS = { spam: "spam", "minority view": "minority", "systematic error": "error", typical: "typical", "too few labels": "few" };
const SIGNS = { spam: "✕ ", "minority view": "◆ ", "systematic error": "≠ ", typical: "✓ ", "too few labels": "… " };
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
  const verdict = people.verdict[n];
  return h("span", { class: `tag ${VERDICTS[verdict] || ""}` }, (SIGNS[verdict] || "") + verdict);
}

function annotatorDetail(n) {
  const group = people.group ? ` Group ${groups[people.group[n]].name}, ${percent(people.sure[n])} sure.` : "";
  const evidence = people.evidence ? people.evidence[n] : "";
  const chance = people.probability && people.probability[n] !== null ? ` Probability of the verdict: ${percent(people.probability[n])}.` : "";
  const detail = h("div", {}, h("p", {}, `${evidence && `${evidence[0].toUpperCase()}${evidence.slice(1)}.`}${chance}${group}`));
  if (!data.rows.size) return detail;
  const own = new Array(P).fill(0);
  const usual = new Array(P).fill(0);
  const odd = [];
  for (const [i, label] of labelsByAnnotator()[n]) {
    own[label] += 1;
    for (let p = 0; p < P; p += 1) usual[p] += items.p[i * P + p];
    odd.push([items.p[i * P + label], i, label]);
  }
  detail.append(h("div", { class: "pair" }, "Own labels", bar(own, "Own labels"),
    "Population", bar(usual, "What the population would say of the same items")));
  odd.sort((a, b) => a[0] - b[0]);
  const unusual = odd.filter((one) => one[0] < 300).slice(0, 3);
  if (unusual.length) detail.append(h("h4", {}, "Labels that few others would give"));
  for (const [share, i, label] of unusual) {
    detail.append(h("p", { class: "note" }, `‘${classes[label]}’, as ${percent(share / 1000)} of the population would say, for:`),
      quote(i));
  }
  return detail;
}

function annotatorColumns() {
  return [
    { key: "id", title: "Annotator", value: (n) => people.id[n], cell: (n) => h("span", {}, people.id[n]) },
    { key: "n", title: "Labels", number: true, value: (n) => people.n[n], cell: (n) => whole(people.n[n]) },
    { key: "agreement", title: "Agreement", number: true, minor: true, value: (n) => people.agreement[n],
      help: "Chance that another's label on the same item equals theirs", cell: (n) => percent(people.agreement[n]) },
    people.information && { key: "information", title: "Information", number: true, minor: true, value: (n) => people.information[n],
      help: "Nats that one of their labels tells about the item", cell: (n) => decimal(people.information[n], 3) },
    people.group && { key: "group", title: "Group", minor: true, value: (n) => groups[people.group[n]].name,
      cell: (n) => `${groups[people.group[n]].name} (${percent(people.sure[n])})`, help: "Most likely group and its probability" },
    people.verdict && { key: "verdict", title: "Verdict", value: (n) => people.verdict[n], cell: verdictTag },
  ].filter(Boolean);
}

function annotatorPresets() {
  const counts = data.verdicts || {};
  const some = Object.keys(VERDICTS).filter((verdict) => counts[verdict]);
  const words = {
    spam: "Their labels carry no information about the items: as if drawn from a hat. Set them aside.",
    "minority view": "Informative, but different from the others: a view of their own, not carelessness. Keep them.",
    "systematic error": "Informative, but by rule different from everybody: ask whether they misread the task.",
    typical: "They answer as one of the large views does.",
    "too few labels": "Their labels can be explained with the items or without: ask for more.",
  };
  return [{ title: "All", sort: "n", down: true }, ...some.map((verdict) => ({
    title: `${SIGNS[verdict]}${verdict} (${whole(counts[verdict])})`, words: words[verdict], sort: "n", down: true,
    keep: (n) => people.verdict[n] === verdict }))];
}

function crosstab(tab) {
  const totals = groups.map((_, g) => tab.counts.reduce((sum, row) => sum + row[g], 0));
  const all = totals.reduce((sum, n) => sum + n, 0);
  const lines = tab.values.map((value, row) => {
    const total = tab.counts[row].reduce((sum, n) => sum + n, 0);
    const cells = tab.counts[row].map((n, g) => paint(
      h("td", {}, `${whole(n)} (${percent(n / (totals[g] || 1))})`), n / (totals[g] || 1)));
    return h("tr", {}, h("th", { scope: "row" }, value), ...cells, h("td", {}, `${whole(total)} (${percent(total / all)})`));
  });
  const heads = [tab.name, ...groups.map((group) => `Group ${group.name}`), "All"];
  return h("div", {}, h("h3", {}, `${tab.name}, by group`), h("p", {}, tab.words),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${tab.name} by group` },
      h("table", { class: "heat" }, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...lines))));
}

function showAnnotators() {
  if (!people) return;
  const table = new DataTable({ id: "annotators-table", caption: "Annotators", columns: annotatorColumns(),
    size: people.id.length, detail: annotatorDetail, presets: annotatorPresets(), text: (n) => people.id[n], pageSize: 15 });
  section("annotators", "Annotators",
    people.verdict
      ? "Spam and a minority view both disagree with the others; only spam tells nothing. Open a row for the evidence."
      : "This model does not judge annotators; a page of HPGM says who spams and who holds a view of their own.",
    ...data.views.map((view) => h("p", {}, view)), table.element,
    ...data.crosstabs.map(crosstab));
}
