// Gold labels: accuracy by class, and confusion with the model's labels.

function showGold() {
  const { gold } = data;
  if (!gold) return;
  const ends = (found) => `${percent(found[0], 1)} (${percent(found[1], 1)} to ${percent(found[2], 1)})`;
  const rows = classes.map((_, p) => p).filter((p) => gold.classes[p]);
  const lines = rows.map((p) => {
    const { raw, model } = gold.class_right;
    return h("tr", {}, h("th", { scope: "row" }, classLabel(p)), h("td", { class: "number" }, whole(gold.classes[p])),
      h("td", { class: "number" }, percent(raw[p])), h("td", { class: "number" }, percent(model[p])));
  });
  const table = plainTable("gold-classes", null, [["Gold label"], ["Items", "number"], ["Accuracy of the most frequent label", "number"], ["Accuracy of the model", "number"]], lines);
  const cells = rows.map((p) => h("tr", {}, h("th", { scope: "row" }, classLabel(p)), ...gold.confusion[p].map((n) => {
    return paint(h("td", {}, whole(n)), n / (gold.classes[p] || 1));
  })));
  const matrix = h("table", { class: "heat", id: "gold-confusion" }, h("caption", {}, "Items by gold label (rows) and the model’s label (columns)"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Gold"), ...classes.map((name) => h("th", { scope: "col" }, ...breakable(name))))), h("tbody", {}, ...cells));
  const how = gold.crossed ? " (each item evaluated by a fit without its own gold label)" : "";
  const difficult = gold.difficult ? " Annotators agree less on these items than on others, so that accuracy on all items is probably higher." : "";
  const link = h("a", { href: "#items", "data-preset": "wrong" }, "Show items that differ from gold");
  section("gold", "Gold labels", `On ${whole(gold.n)} items with a gold label, the accuracy of the most frequent label is ${ends(gold.raw)} and that of the model ${ends(gold.model)}${how}. Intervals have a level of 95 %; ties count in part.${difficult}`,
    h("p", {}, link), h("div", { class: "columns" }, offered("gold-classes", "Accuracy by gold label", table), offered("gold-confusion", "Gold label and model’s label", matrix)));
}
