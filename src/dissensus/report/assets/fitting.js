// How good the labels are, and how the fit came about.

function figure(title, value, small) {
  return h("div", { class: "figure" }, h("dt", {}, title), h("dd", {}, h("div", { class: "value" }, value),
    small ? h("div", { class: "small" }, small) : null));
}

function heldOutTable() {
  const rows = data.quality.held_out;
  if (!rows.length) return h("p", { class: "note" }, "No labels were hidden, so models are not compared here.");
  const chance = (score) => (score === null ? null : Math.exp(score));
  const lines = rows.map((row) => h("tr", { class: row.own ? "own" : null },
    h("th", { scope: "row" }, row.own ? `${row.title} (this report)` : row.title),
    h("td", {}, h("span", {}, chance(row.score) === null ? "0 %" : percent(chance(row.score), 1)), meter(chance(row.score) || 0, !row.own)),
    h("td", { class: "number" }, row.score === null ? "−∞" : decimal(row.score, 3)),
    h("td", { class: "number minor" }, row.score_items === null ? "−∞" : decimal(row.score_items, 3))));
  const heads = [["Model", null], ["Probability", null], ["Log-likelihood", "number"],
    ["Annotator unknown", "number minor"]];
  const caption = `${whole(rows[0].n)} labels were hidden from each model and then foretold: the probability it gave them `
    + "(geometric mean), and the log-likelihood per label in nats. Higher is better.";
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Hidden labels" },
    h("table", { id: "held-out" }, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...heads.map(([title, style]) => h("th", { scope: "col", class: style }, title)))),
      h("tbody", {}, ...lines)));
}

function balance() {
  const counts = data.data.class_counts;
  const total = counts.reduce((sum, n) => sum + n, 0) || 1;
  const lines = counts.map((n, p) => h("tr", {}, h("th", { scope: "row" }, classLabel(p)),
    h("td", { class: "number" }, whole(n)), h("td", {}, percent(n / total, 1), meter(n / total))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Class balance" },
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Class"), h("th", { scope: "col", class: "number" }, "Labels"),
        h("th", { scope: "col" }, "Share"))),
      h("tbody", {}, ...lines)));
}

function dataFigures() {
  const found = data.data;
  return h("dl", { class: "figures" },
    figure("Items", whole(found.n_items), found.n_unlabelled ? `${whole(found.n_unlabelled)} without a label` : null),
    figure("Labels", whole(found.n_labels), `${decimal(found.per_item, 1)} an item`),
    found.n_annotators === null ? null : figure("Annotators", whole(found.n_annotators), `half gave ${whole(found.per_annotator)} or less`),
    figure("Classes", whole(P), null),
    found.n_parts > 1 ? figure("Parts", whole(found.n_parts), "that no label links") : null);
}

function qualityFigures() {
  const { quality } = data;
  const { worth } = quality;
  const ratio = worth && worth.efficiency >= 1 ? `× ${(worth.efficiency / worth.shown).toFixed(1)}`
    : worth && worth.efficiency === null ? `> × ${(worth.pool / worth.shown).toFixed(1)}` : null;
  return h("dl", { class: "figures" },
    figure("Krippendorff’s α", decimal(quality.alpha, 3), quality.alpha_words),
    figure("Fleiss’ κ", decimal(quality.kappa, 3), "1 is full agreement, 0 is chance"),
    figure("Mean entropy", decimal(quality.entropy, 3), `nats, of at most ${decimal(quality.most_entropy, 2)}`),
    figure("Majorities overturned", whole(data.n_overturned), `${percent(data.n_overturned / M, 1)} of the items`),
    ratio ? figure("A label is worth", ratio, "raw labels") : null);
}

function showOverview() {
  const { worth } = data.quality;
  const valued = worth ? h("p", { class: "note" }, worth.words)
    : h("p", { class: "note" }, "Items have too few labels to tell how many raw ones a refined label is worth.");
  section("overview", "Overview", null, dataFigures(), qualityFigures(), valued,
    h("div", { class: "columns" },
      h("div", {}, h("h3", {}, "Labels the model has not seen"), heldOutTable()),
      h("div", {}, h("h3", {}, "Labels given"), balance())),
    ...data.data.notes.map((note) => h("p", { class: "note" }, note)));
}

function showItems() {
  const two = data.true_classes
    ? " The label is the class that the model holds to be true; the distribution is how sure it is of each class." : "";
  section("items", "Items", `Search, sort by any column, open a row for the whole text and who said what.${two}`, legend(), itemTable.element);
}

function surface() {
  const { k, l, scores, winner, n } = data.search;
  const flat = scores.flat().filter((score) => score !== null);
  const [low, high] = [Math.min(...flat), Math.max(...flat)];
  const lines = k.map((size, row) => h("tr", {}, h("th", { scope: "row" }, String(size)), ...l.map((number, column) => {
    const score = scores[row][column];
    if (score === null) return h("td", {}, "–");
    const cell = paint(h("td", {}, score.toFixed(3)), (score - low) / (high - low || 1));
    if (size === winner[0] && number === winner[1]) cell.classList.add("best");
    return cell;
  })));
  return h("div", {}, h("h3", {}, "The search"),
    h("p", {}, `${whole(n)} cells were tried; K = ${winner[0]} clusters of items and L = ${winner[1]} groups of annotators won (outlined). `
      + "Scores are the winner’s, less what a cell is behind it on the same splits; higher is better."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores over K and L" },
      h("table", { class: "heat", id: "surface" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "K \\ L"),
        ...l.map((number) => h("th", { scope: "col" }, String(number))))), h("tbody", {}, ...lines))));
}

function traceChart() {
  const { iteration, objective, stopped } = data.trace;
  const [low, high] = [Math.min(...objective), Math.max(...objective)];
  const last = iteration[iteration.length - 1];
  const x = (i) => 70 + (560 * (iteration[i] - 1)) / Math.max(last - 1, 1);
  const y = (i) => 190 - (170 * (objective[i] - low)) / (high - low || 1);
  const points = iteration.map((_, i) => `${x(i).toFixed(1)},${y(i).toFixed(1)}`).join(" ");
  const mark = (left, down, text, anchor) => svg("text", { x: left, y: down, "text-anchor": anchor }, text);
  const words = `From ${objective[0].toPrecision(6)} to ${objective[objective.length - 1].toPrecision(6)} in ${last} iterations; stopped by ${stopped}.`;
  return h("div", {}, h("h3", {}, "The trace of the fit"), h("p", {}, words),
    svg("svg", { viewBox: "0 0 640 225", class: "plot", role: "img", "aria-label": `Objective by iteration. ${words}` },
      svg("line", { x1: 70, y1: 190, x2: 630, y2: 190, class: "axis" }), svg("line", { x1: 70, y1: 20, x2: 70, y2: 190, class: "axis" }),
      svg("polyline", { points, class: "curve" }), mark(64, 24, high.toPrecision(5), "end"), mark(64, 194, low.toPrecision(5), "end"),
      mark(70, 212, "1", "middle"), mark(630, 212, String(last), "end"), mark(350, 212, "iteration", "middle")));
}

function showFit() {
  const copy = h("button", { type: "button", onclick: () => {
    const said = () => { copy.textContent = "Copied"; };
    if (navigator.clipboard) navigator.clipboard.writeText(data.command).then(said, () => {});
  } }, "Copy");
  section("fit", "Fit", `The model: ${data.model}.`, data.search ? surface() : null, data.trace ? traceChart() : null,
    data.command ? h("h3", {}, "The command that made this") : null,
    data.command ? h("pre", { id: "command", tabindex: "0" }, data.command) : null, data.command ? copy : null);
}
