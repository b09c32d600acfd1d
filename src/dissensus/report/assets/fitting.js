// The models: how well each foresees labels it has not seen, the search, the trace, and what is in the data.

function heldOutTable() {
  const rows = data.quality.held_out;
  if (!rows.length) return h("p", { class: "note" }, "No labels were hidden, so models are not compared here.");
  const chance = (score) => (score === null ? null : Math.exp(score));
  const behind = ([mean, error, tied]) => (mean === null || error === null ? "" : mean === 0 ? "best" : `${decimal(mean, 3)} ± ${decimal(error, 3)}${tied ? ", tied" : ""}`);
  const lines = rows.map((row) => h("tr", { class: row.own ? "own" : null },
    h("th", { scope: "row" }, row.own ? `${row.title} (this report)` : row.title),
    h("td", {}, h("span", {}, chance(row.score) === null ? "0 %" : percent(chance(row.score), 1)), meter(chance(row.score) || 0, !row.own)),
    h("td", { class: "number" }, row.score === null ? "−∞" : decimal(row.score, 3)),
    h("td", { class: "number" }, behind(row.behind)),
    h("td", { class: "number minor" }, row.score_items === null ? "−∞" : decimal(row.score_items, 3)),
    h("td", { class: "number minor" }, behind(row.behind_items))));
  const heads = [["Model"], ["Probability"], ["Log-likelihood", "number"], ["Behind the best", "number"], ["Annotator unknown", "number minor"], ["Behind the best", "number minor"]];
  const caption = `${whole(rows[0].n)} labels were hidden from each model and then foretold: the probability it gave them `
    + "(geometric mean), and the log-likelihood per label in nats. Higher is better. How far a model is behind the best has its "
    + "standard error, paired over items; models less than two of them apart are tied.";
  return offered("held-out", "Hidden labels", plainTable("held-out", caption, heads, lines));
}

function balance() {
  const counts = data.data.class_counts;
  const total = counts.reduce((sum, n) => sum + n, 0) || 1;
  const lines = counts.map((n, p) => h("tr", {}, h("th", { scope: "row" }, classLabel(p)),
    h("td", { class: "number" }, whole(n)), h("td", {}, percent(n / total, 1), meter(n / total, false, p))));
  return offered("classes", "Class shares", plainTable("balance", null, [["Class"], ["Labels", "number"], ["Share"]], lines));
}

function showData() {
  const found = data.data;
  const facts = [
    found.pairwise === null ? null : `Two annotators of an item agree in ${percent(found.pairwise)} of the cases.`,
    found.consistency === null ? null : `Of labels that one annotator gave an item twice, ${percent(found.consistency)} are alike.`,
    found.n_unlabelled ? `${whole(found.n_unlabelled)} items have no label.` : null,
    `α is at the ${found.level} level.`,
  ].filter(Boolean);
  section("labels", "Labels", facts.join(" "), balance(), ...found.notes.map((note) => h("p", { class: "note" }, note)));
}

function showModels() {
  const copy = data.command ? copyButton(() => data.command, "Copy as command") : null;
  section("models", "Model", `This page: ${data.model}.`,
    fold("How models compare on labels they have not seen", () => [heldOutTable(), data.quality.worth ? h("p", { class: "note" }, data.quality.worth.words) : null], "comparison"),
    data.search ? fold("The search over numbers of clusters", surface, "search") : null,
    data.trace ? fold("The trace of the fit", traceChart, "trace") : null,
    data.command ? h("h3", {}, "The command that made this") : null,
    data.command ? h("pre", { id: "command", tabindex: "0" }, data.command) : null, copy);
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
  return h("div", {},
    h("p", {}, `${whole(n)} cells were tried; K = ${winner[0]} clusters of items and L = ${winner[1]} groups of annotators won (outlined). `
      + "Scores are the winner’s, less what a cell is behind it on the same splits; higher is better."),
    offered("search", "Scores over K and L",
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
  return h("div", {}, h("p", {}, words),
    svg("svg", { viewBox: "0 0 640 225", class: "plot", role: "img", "aria-label": `Objective by iteration. ${words}` },
      svg("line", { x1: 70, y1: 190, x2: 630, y2: 190, class: "axis" }), svg("line", { x1: 70, y1: 20, x2: 70, y2: 190, class: "axis" }),
      svg("polyline", { points, class: "curve" }), mark(64, 24, high.toPrecision(5), "end"), mark(64, 194, low.toPrecision(5), "end"),
      mark(70, 212, "1", "middle"), mark(630, 212, String(last), "end"), mark(350, 212, "iteration", "middle")));
}
