// Where gold labels are known: how right the labels are, by class, and what is taken for what.

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
  const table = plainTable("gold-classes", null, [["Gold class"], ["Items", "number"], ["Most frequent label right", "number"], ["Model right", "number"]], lines);
  const cells = rows.map((p) => h("tr", {}, h("th", { scope: "row" }, classLabel(p)), ...gold.confusion[p].map((n) => {
    return paint(h("td", {}, whole(n)), n / (gold.classes[p] || 1));
  })));
  const matrix = h("table", { class: "heat", id: "gold-confusion" }, h("caption", {}, "Items by gold class (rows) and the model’s label (columns)"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Gold"), ...classes.map((name) => h("th", { scope: "col" }, ...breakable(name))))), h("tbody", {}, ...cells));
  const how = gold.crossed ? " (each item by a fit that saw the gold of others alone)" : "";
  const link = h("a", { href: "#items", "data-preset": "wrong" }, "Show the items where gold differs");
  section("gold", "Gold labels", `On ${whole(gold.n)} items with gold the most frequent label is right on ${ends(gold.raw)} and the model’s on ${ends(gold.model)}${how}; 95 % intervals, ties counted in part.`,
    h("p", {}, link), h("div", { class: "columns" }, offered("gold-classes", "Right, by gold class", table), offered("gold-confusion", "Gold class and model’s label", matrix)));
}
