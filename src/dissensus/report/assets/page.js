// Order of the sections.

function amounts() {
  const { n_items: n, n_annotators: people_, n_labels: labels } = data.data;
  const by = people_ === null ? "" : ` by ${whole(people_)} annotators`;
  document.getElementById("amounts").textContent =
    `${whole(labels)} labels${by} on ${whole(n)} items, ${P} classes · model: ${data.model}`;
}

function sinceTable(id, caption, heads, rows) {
  if (!rows.length) return null;
  const lines = rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row[0]), ...row.slice(1).map((cell) => h("td", {}, cell))));
  const save = h("button", { type: "button", class: "take", onclick: () => download(id, [heads.map((head) => head[0]), ...rows]) }, "Download CSV");
  return h("div", {}, h("h3", {}, caption), scrolled(caption, plainTable(id, null, heads, lines.slice(0, 50))),
    h("p", { class: "note" }, lines.length > 50 ? `The first 50 of ${whole(lines.length)}. ` : "", save));
}

function showSince() {
  const { since } = data;
  if (!since) return;
  section("since", `Changes since ${since.name}`, since.says,
    sinceTable("flipped", "Items whose label changed", [["Item"], ["Before"], ["Now"], ["New labels"]], since.flipped),
    sinceTable("verdicts", "Annotators whose verdict changed", [["Annotator"], ["Before"], ["Now"]], since.verdicts));
}

// Numbers and sentences link to the table they count, with its filter.
function links() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-preset]");
    if (!link) return;
    const table = tables[link.hash.slice(1)];
    if (!table) return;
    event.preventDefault();
    table.show(link.dataset.preset);
    table.element.scrollIntoView({ block: "start" });
    const chip = table.chips[table.place];
    if (chip) chip.focus({ preventScroll: true });
  });
}

amounts();
showSince();
showItems();
showAnnotators();
showGold();
showClusters();
showJudges();
showData();
showModels();
navigation();
links();
document.documentElement.dataset.ready = "yes";
