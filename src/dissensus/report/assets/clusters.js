// Groups of annotators who answer differently, and the clusters of items.

function groupCard(g) {
  const group = groups[g];
  const size = `${whole(group.n)} annotator${group.n === 1 ? "" : "s"}, ${percent(group.labels)} of the labels`;
  const names = people.id.filter((_, n) => people.group[n] === g);
  const shown = names.slice(0, 12).join(", ") + (names.length > 12 ? ` and ${whole(names.length - 12)} more` : "");
  return h("div", { class: "card" }, h("h3", {}, `${group.name[0].toUpperCase()}${group.name.slice(1)}`), h("p", { class: "note" }, size),
    h("div", { class: "pair" }, "Answers", bar(group.answers, `Answers of the ${group.name} to items that both groups labelled`)), h("p", {}, shown));
}

function clusterName(k) {
  return clusters.true_classes ? `True class ‘${classes[k]}’` : `Item cluster ${k + 1}`;
}

function clusterCard(cluster, k) {
  return h("div", { class: "card" }, h("h3", {}, clusterName(k)), h("p", { class: "note" }, `${cluster.words}.`), bar(cluster.counts, "Labels given"),
    cluster.items.length ? h("h4", {}, "Typical items") : null, ...cluster.items.slice(0, 3).map(quote));
}

function groupWords() {
  return clusters.says || "The data do not identify annotators, so there are no groups.";
}

function showClusters() {
  const parts = [];
  if (groups.length) {
    parts.push(h("div", { class: "cards", id: "group-cards" }, ...groups.map((_, g) => groupCard(g))));
    if (clusters.contrast) parts.push(h("h3", {}, "Where the groups differ"), h("p", { id: "contrast" }, clusters.contrast), ...Array.from(clusters.examples, quote));
  }
  if (clusters.items.length) {
    parts.push(fold(`${clusters.items.length} clusters of similarly labelled items`,
      () => h("div", { class: "cards" }, ...clusters.items.map(clusterCard)), "clusters"));
  }
  section("groups", "Groups", groupWords(), legend(), ...parts);
}
