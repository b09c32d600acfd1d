// Groups of annotators and clusters of items: what each answers, and what sets the groups apart.

const SHOWN_GROUPS = 6;

function theta(k, g) {
  const start = (k * Math.max(groups.length, 1) + g) * P;
  return clusters.theta.slice(start, start + P);
}

function contrastCard(contrast) {
  const { cluster } = contrast;
  const words = `On ${clusters.items[cluster].words}: ${contrast.says}.`;
  const list = contrast.groups.concat(groups.map((_, g) => g)
    .filter((g) => !groups[g].idle && !contrast.groups.includes(g))).slice(0, 4);
  const rows = list.flatMap((g) => [`Group ${groups[g].name}`, bar(theta(cluster, g), `Group ${groups[g].name}`)]);
  return h("div", { class: "card" }, h("p", {}, words), h("div", { class: "pair" }, ...rows),
    contrast.items.length ? h("h4", {}, "Such as") : null, ...contrast.items.slice(0, 3).map(quote));
}

function heatMap(g, relative) {
  const lines = clusters.items.map((cluster, k) => {
    const own = theta(k, g);
    const cells = own.map((value, p) => {
      const gap = (value - cluster.p[p]) / 1000;
      const text = relative ? `${gap > 0 ? "+" : gap < 0 ? "−" : ""}${Math.abs(100 * gap).toFixed(0)}` : (value / 10).toFixed(0);
      return relative ? paint(h("td", {}, text), 0.5 + gap / 1.2, "more") : paint(h("td", {}, text), value / 1000);
    });
    const name = clusters.true_classes ? classes[k] : `cluster ${k + 1}`;
    return h("tr", {}, h("th", { scope: "row" }, name), ...cells);
  });
  const caption = relative ? "Percentage points above or below everyone's answers" : "Answers in per cent";
  return h("div", { class: "scroll", tabindex: "0", role: "region",
    "aria-label": groups.length ? `Answers of group ${groups[g].name}` : "Answers by cluster" },
  h("table", { class: "heat" }, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, clusters.true_classes ? "True class" : "Items"),
      ...classes.map((name) => h("th", { scope: "col" }, ...breakable(name))))), h("tbody", {}, ...lines)));
}

function groupCard(g, relative) {
  const group = groups[g];
  const people_ = `${whole(group.n)} annotator${group.n === 1 ? "" : "s"}, ${percent(group.labels)} of the labels`;
  return h("div", { class: "card" }, h("h3", {}, `Group ${group.name}`), h("p", { class: "note" }, people_),
    ...group.words.map((sentence) => h("p", {}, sentence)), heatMap(g, relative));
}

function groupCards() {
  const cards = h("div", { class: "cards", id: "group-cards" });
  let relative = false;
  let all = false;
  const more = h("button", { type: "button", onclick: () => { all = true; draw(); } }, `Show all ${groups.length} groups`);
  const draw = () => {
    const n = all ? groups.length : Math.min(groups.length, SHOWN_GROUPS);
    cards.replaceChildren(...groups.slice(0, n).map((_, g) => groupCard(g, relative)));
    more.hidden = n === groups.length;
  };
  const choices = [["What each group answers", false], ["How it differs from everyone", true]];
  const chips = choices.map(([title, value]) => h("button", { type: "button", "aria-pressed": String(value === relative),
    onclick: () => {
      relative = value;
      chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(choices[i][1] === relative)));
      draw();
    } }, title));
  draw();
  return [h("div", { class: "tools chips", role: "group", "aria-label": "Heat maps show" }, ...chips), cards, more];
}

function clusterCard(cluster, k) {
  const name = clusters.true_classes ? `True class ‘${classes[k]}’` : `Cluster ${k + 1}`;
  return h("div", { class: "card" }, h("h3", {}, name),
    h("p", { class: "note" }, `most likely the cluster of ${whole(cluster.n)} ${cluster.n === 1 ? "item" : "items"}; ${percent(cluster.share)} of all when unsure items are shared out`), bar(cluster.p, "Answers"),
    cluster.items.length ? h("h4", {}, "Typical items") : null, ...cluster.items.slice(0, 3).map(quote));
}

function showClusters() {
  if (!clusters) return;
  const from = clusters.borrowed
    ? `The reported model does not group annotators; these groups come from a small one fitted beside it (${clusters.source}).`
    : `As ${clusters.source} found them, the largest first; clusters that nothing belongs to are left out.`;
  const parts = [];
  if (clusters.contrasts.length) {
    parts.push(h("h3", {}, "What the groups disagree about"),
      h("p", {}, `${percent(clusters.between)} of all disagreement lies between the groups; the rest is within them. `
        + "These are the clusters of items on which they differ most."),
      h("div", { class: "cards" }, ...clusters.contrasts.map(contrastCard)));
  }
  if (groups.length) parts.push(h("h3", {}, "The groups of annotators"), ...groupCards());
  else parts.push(h("h3", {}, "Answers by cluster of items"), heatMap(0, false));
  parts.push(h("h3", {}, "The clusters of items"), h("div", { class: "cards" }, ...clusters.items.map(clusterCard)));
  section("groups", "Groups", from, legend(), ...parts);
}
