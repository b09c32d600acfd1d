// Groups of annotators that the labels confirm, their contrasts, and the clusters of items.

const SHOWN_GROUPS = 6;

function contrastCard(contrast) {
  const list = contrast.groups.concat(groups.map((_, g) => g).filter((g) => !contrast.groups.includes(g))).slice(0, 4);
  const rows = list.filter((g) => contrast.shares[g].some((share) => share > 0))
    .flatMap((g) => [`Group ${groups[g].name}`, bar(contrast.shares[g], `Group ${groups[g].name}`)]);
  return h("div", { class: "card" }, h("p", {}, contrast.says), h("div", { class: "pair" }, ...rows),
    contrast.items.length ? h("h4", {}, "Examples") : null, ...contrast.items.slice(0, 3).map(quote));
}

function groupCard(g) {
  const group = groups[g];
  const size = `${whole(group.n)} annotator${group.n === 1 ? "" : "s"}, ${percent(group.labels)} of the labels`;
  return h("div", { class: "card" }, h("h3", {}, `Group ${group.name}`), h("p", { class: "note" }, size), h("p", {}, group.words),
    h("div", { class: "pair" }, "Group", bar(group.own, "Labels of the group"), "Others", bar(group.usual, "Labels of the others for the same items")));
}

function groupCards() {
  const cards = h("div", { class: "cards", id: "group-cards" }, ...groups.slice(0, SHOWN_GROUPS).map((_, g) => groupCard(g)));
  if (groups.length <= SHOWN_GROUPS) return [cards];
  const more = h("button", { type: "button", onclick: () => {
    cards.append(...groups.slice(SHOWN_GROUPS).map((_, g) => groupCard(g + SHOWN_GROUPS)));
    more.remove();
  } }, `Show all ${groups.length} groups`);
  return [cards, more];
}

function clusterName(k) {
  return clusters.true_classes ? `True class ‘${classes[k]}’` : `Item cluster ${k + 1}`;
}

function clusterCard(cluster, k) {
  return h("div", { class: "card" }, h("h3", {}, clusterName(k)), h("p", { class: "note" }, `${cluster.words}.`), bar(cluster.counts, "Labels given"),
    cluster.items.length ? h("h4", {}, "Typical items") : null, ...cluster.items.slice(0, 3).map(quote));
}

function groupWords() {
  const from = clusters.borrowed ? `a small model fitted for this purpose, ${clusters.source},` : clusters.source;
  if (groups.length) {
    return `Groups of annotators found by ${from} and confirmed by the labels: members of a group agree with one another more than with others.`;
  }
  return people
    ? `The labels show no groups of annotators that agree with one another significantly more than with others; the search used ${from.replace(/,$/, "")}.`
    : "The data do not identify annotators, so there are no groups.";
}

function showClusters() {
  if (!clusters) return;
  const parts = [];
  if (groups.length) parts.push(...groupCards());
  if (clusters.contrasts.length) {
    parts.push(h("h3", {}, "Largest contrasts between groups"), h("div", { class: "cards" }, ...clusters.contrasts.map(contrastCard)));
  }
  parts.push(fold(`${clusters.items.length} clusters of similarly labelled items`,
    () => h("div", { class: "cards" }, ...clusters.items.map(clusterCard)), "clusters"));
  section("groups", "Groups", groupWords(), legend(), ...parts);
}
