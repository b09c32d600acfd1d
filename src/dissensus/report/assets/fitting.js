// Models: comparison on held-out labels, the search and the trace; and the labels of the data.

function heldOutTable() {
  const rows = data.held_out;
  const chance = (score) => (score === null ? null : Math.exp(score));
  const behind = ([mean, error, tied]) => (mean === null || error === null ? "" : mean === 0 ? "best" : `${decimal(mean, 3)} ± ${decimal(error, 3)}${tied ? ", tied" : ""}`);
  const lines = rows.map((row) => h("tr", { class: row.own ? "own" : null },
    h("th", { scope: "row" }, row.own ? `${row.title}, this report` : row.title),
    h("td", {}, h("span", {}, chance(row.score) === null ? "0 %" : percent(chance(row.score), 1)), meter(chance(row.score) || 0, !row.own)),
    h("td", { class: "number" }, row.score === null ? "−∞" : decimal(row.score, 3)),
    h("td", { class: "number" }, behind(row.behind)),
    h("td", { class: "number minor" }, row.score_items === null ? "−∞" : decimal(row.score_items, 3)),
    h("td", { class: "number minor" }, behind(row.behind_items))));
  const heads = [["Model"], ["Probability"], ["Given item and annotator", "number"], ["Gap", "number"], ["Given the item only", "number minor"], ["Gap", "number minor"]];
  const caption = `Each model predicts ${whole(rows[0].n)} held-out labels. ‘Given item and annotator’ and ‘Given the item only’ are mean log-probabilities of these labels (nats); `
    + "‘Probability’ is the first of the two, as a geometric mean. Higher is better. Gaps to the best model have standard errors, paired over items; "
    + "models within two standard errors are tied. In the last two columns, the models do not know who gave the label. The comparison does not choose the model.";
  return offered("held-out", "Held-out labels", plainTable("held-out", caption, heads, lines));
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
    found.pairwise === null ? null : `Two annotators who labelled the same item agree with probability ${percent(found.pairwise)}.`,
    found.consistency === null ? null : `Two labels of the same item by the same annotator agree with probability ${percent(found.consistency)}.`,
    found.n_unlabelled ? `${whole(found.n_unlabelled)} items have no label.` : null,
    `Krippendorff’s α treats the labels as ${found.level}${found.level === "nominal" ? " (unordered)" : ""}.`,
  ].filter(Boolean);
  section("labels", "Labels", facts.join(" "), balance(), ...found.notes.map((note) => h("p", { class: "note" }, note)));
}

function showModels() {
  const copy = data.command ? copyButton(() => data.command, "Copy the command") : null;
  const moved = data.trace && data.trace.second_run ? ` ${data.trace.second_run}` : "";
  section("models", "Model", `This report uses ${data.model}.${moved}`,
    data.held_out.length ? fold("Comparison of models on held-out labels", heldOutTable, "comparison") : null,
    data.search ? fold("Search over numbers of clusters", surface, "search") : null,
    data.trace ? fold("Convergence of the fit", traceChart, "trace") : null,
    data.command ? h("h3", {}, "Command") : null,
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
    h("p", {}, `Of ${whole(n)} settings, K = ${winner[0]} item clusters and L = ${winner[1]} annotator clusters scored best (outlined). `
      + "Every other score is the best score minus the mean difference on the splits that both settings share; higher is better."),
    offered("search", "Scores over K and L",
      h("table", { class: "heat", id: "surface" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "K \\ L"),
        ...l.map((number) => h("th", { scope: "col" }, String(number))))), h("tbody", {}, ...lines))));
}

function traceChart() {
  const { iteration, objective, stopped, second_run } = data.trace;
  const [low, high] = [Math.min(...objective), Math.max(...objective)];
  const last = iteration[iteration.length - 1];
  const x = (i) => 70 + (560 * (iteration[i] - 1)) / Math.max(last - 1, 1);
  const y = (i) => 190 - (170 * (objective[i] - low)) / (high - low || 1);
  const points = iteration.map((_, i) => `${x(i).toFixed(1)},${y(i).toFixed(1)}`).join(" ");
  const mark = (left, down, text, anchor) => svg("text", { x: left, y: down, "text-anchor": anchor }, text);
  const ends = [objective[0], objective[objective.length - 1]];
  const reasons_ = { tolerance: "because the change fell below the tolerance", max_iter: "at the maximum number of iterations",
    patience: "because the objective no longer improved", "end of path": "at the end of the path of prior strengths" };
  const sampled = data.intervals === "sampled";
  const rose = `The objective ${ends[0] > ends[1] ? "fell" : "rose"} from ${ends[0].toPrecision(6)} to ${ends[1].toPrecision(6)} in ${last} iterations. `;
  const words = sampled ? `${second_run ? `${second_run} ` : ""}The chart shows the log-likelihood of the labels in ${last} sampled states, chain after chain. Chains start from different points and stay at different levels; the answers are their mean.`
    : `${rose}The fit stopped ${reasons_[stopped] || `by ${stopped}`}.`;
  return h("div", {}, h("p", {}, words),
    svg("svg", { viewBox: "0 0 640 225", class: "plot", role: "img", "aria-label": words },
      svg("line", { x1: 70, y1: 190, x2: 630, y2: 190, class: "axis" }), svg("line", { x1: 70, y1: 20, x2: 70, y2: 190, class: "axis" }),
      svg("polyline", { points, class: "curve" }), mark(64, 24, high.toPrecision(5), "end"), mark(64, 194, low.toPrecision(5), "end"),
      mark(70, 212, "1", "middle"), mark(630, 212, String(last), "end"), mark(350, 212, sampled ? "sampled state" : "iteration", "middle")));
}
