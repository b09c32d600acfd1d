// The page on which a person decides items, one at a time. The server keeps everything: the page says that a
// decision is saved only after the server has answered, and texts only ever become text nodes.

const $ = (id) => document.getElementById(id);
const VIEWS = ["decide", "report", "export"];
const N_KEYS = 9; // classes that have a key
const SETTLING = 300; // milliseconds in which a new item takes no click, so that a double click decides one item
const MAX_NAMES = 12; // annotators listed for a class

let state = { stage: "", version: -1, report: 0, latest: null };
let item = null; // the item on screen
let draft = null; // note and ticks of this item
let blind = remembered("blind", false);
let asWritten = false; // texts without formatting
let busy = false; // a decision is being saved, or the next item is being loaded: decisions are not taken
let settled = true; // clicks are taken
let refitting = false;
let shown = { version: -1, line: 0 }; // numbers, and last line of the journal, that the item on screen takes into account
let skipped = [];
const drafts = new Map(Object.entries(remembered("drafts", {})));

// ---- session and server ---------------------------------------------------------------------------------

// Notebooks may forbid storage to frames.
function remembered(name, otherwise) {
  try { return JSON.parse(sessionStorage.getItem(name)) ?? otherwise; } catch { return otherwise; }
}

function remember(name, value) {
  try { sessionStorage.setItem(name, JSON.stringify(value)); } catch { /* not kept */ }
}

async function ask(path, body, type = "application/json") {
  const post = { method: "POST", headers: { "Content-Type": type }, body: type === "application/json" ? JSON.stringify(body) : body };
  let answer;
  try { answer = await fetch(path, { cache: "no-store", ...(body === undefined ? {} : post) }); } catch {
    throw new Error("The server does not answer. If it was stopped, run dissensus open again and use the page that it opens; no saved decision is lost.");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.error || `The server answered with status ${answer.status}.`);
  return content;
}

// Confirm; small screens show the words without the details.
function say(words, details = "") {
  $("status").replaceChildren(...(words ? [words, h("span", {}, details)] : []));
}

// Show what went wrong, with a button to try again or otherwise go on; `about` is what a later success may clear.
function warn(words, title = "", action = null, about = "decision") {
  $("alert").dataset.about = about;
  const button = title && h("button", { type: "button", onclick: () => { calm(); action(); } }, title);
  $("alert").replaceChildren(h("p", {}, words, " ", button || ""));
}

function calm(about = $("alert").dataset.about) {
  if (about === $("alert").dataset.about) $("alert").replaceChildren();
}

const failed = (error, again) => warn(error.message, "Try again", again);

// ---- state ----------------------------------------------------------------------------------------------

let timer = 0;
let asked = 0;
let applied = 0;
let soon = 0; // polls to come in quick succession
let lost = false;

async function poll() {
  clearTimeout(timer);
  const turn = asked += 1;
  try {
    const found = await ask("state");
    if (lost) { lost = false; calm("server"); }
    if (turn > applied) { applied = turn; apply(found); }
  } catch (error) {
    if (!lost && !$("alert").firstChild) warn(error.message, "", null, "server");
    lost = true;
  }
  clearTimeout(timer);
  soon = Math.max(0, soon - 1);
  timer = setTimeout(poll, soon ? 300 : lost ? 2000 : working() ? 1000 : 5000);
}

function pollSoon() {
  soon = 6;
  poll();
}

const working = () => state.stage === "fitting";
const opened = () => state.n_items !== undefined; // there are numbers, if only those of the first fit

function apply(found) {
  const before = state;
  state = found;
  document.title = state.title ? `${state.title} – dissensus` : "dissensus";
  $("title").textContent = state.title || "dissensus";
  showBackground();
  showView();
  if (refitting && !working()) {
    refitting = false;
    say("The refit is finished; the report is new.");
  }
  if ($("notes").hidden && state.notes && state.notes.length) {
    $("notes").hidden = false;
    $("notes").replaceChildren(h("summary", {}, "Notes on the file"), h("ul", {}, ...state.notes.map((one) => h("li", {}, one))));
  }
  if (before.error !== state.error && state.error) warn(state.error, "", null, "fit");
  else if (!state.error) calm("fit");
  if (!opened() || busy) return;
  showCounts();
  if (state.version !== shown.version || line() > shown.line) {
    if (item) refresh();
    else advance();
  }
  if (before.version !== state.version) showTexts();
}

const line = () => (state.latest ? state.latest.seq : 0);

function showBackground() {
  const words = state.message || (state.fast ? "numbers of a quick first fit" : "");
  $("background").hidden = !words || !opened();
  $("background-words").textContent = words;
  const bar = $("background").firstChild;
  bar.hidden = !state.message;
  if (state.message) bar.value = state.share || 0;
  $("fitting-words").textContent = state.stage === "failed" ? "Stop the server, correct the file, and open it again." : state.message || "Reading the file";
  $("fitting-share").value = state.share || 0;
  $("refit").disabled = working();
}

// ---- views ----------------------------------------------------------------------------------------------

function view() {
  const name = location.hash.slice(1);
  return VIEWS.includes(name) ? name : "decide";
}

function showView() {
  const { stage } = state;
  const shown = opened() ? view() : stage === "waiting" ? stage : "fitting";
  document.querySelector("nav ul").hidden = !opened();
  $("fitting-title").textContent = stage === "failed" ? "The labels cannot be fitted" : "Preparing the items";
  $("fitting-share").hidden = stage === "failed";
  for (const name of [...VIEWS, "waiting", "fitting"]) $(`view-${name}`).hidden = name !== shown;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("keys").dataset.view = shown;
  if (shown === "report") showReport();
}

// The report in its frame, loaded anew when there is a new one, at the same position.
function showReport() {
  const frame = $("frame");
  frame.hidden = !state.report;
  $("no-report").hidden = Boolean(state.report);
  $("old-report").hidden = !state.report_is_old;
  if (!state.report || frame.dataset.report === String(state.report)) return;
  let top = 0;
  try { top = frame.contentWindow.scrollY; } catch { /* nothing loaded */ }
  frame.addEventListener("load", () => { try { frame.contentWindow.scrollTo(0, top); } catch { /* not ours */ } }, { once: true });
  frame.dataset.report = state.report;
  frame.src = `report?v=${state.report}`;
}

const FILES = [
  ["gold.csv", "The decided items and the label you chose. `dissensus fit FILE --gold gold.csv --estimate truth` trains on them."],
  ["labels.csv", "One label for each item: your decision if there is one, else the most probable class according to the model."],
  ["label-studio.json", "The items with their labels as predictions, to import into Label Studio."],
  ["argilla.json", "The items with their labels, to import into Argilla."],
  ["decisions.jsonl", "Every decision in the order in which it was made, also unsure and undone ones, with your notes."],
];
const TEXTS = [["methods.txt", "Methods", "A paragraph for a paper."], ["table.tex", "Table", "Agreement, labels per item, model and version, in LaTeX."]];

async function showTexts() {
  if (view() !== "export" || !opened()) return;
  const found = await Promise.all(TEXTS.map(([name]) => fetch(`export/${name}`).then((answer) => (answer.ok ? answer.text() : ""), () => "")));
  $("texts").replaceChildren(...TEXTS.flatMap(([name, title, words], n) => {
    const text = h("pre", { tabindex: "0", "aria-label": title }, found[n]);
    const copy = h("button", { type: "button", onclick: () => copyText(text, copy) }, "Copy");
    return found[n] ? [h("h3", {}, title), h("p", { class: "note" }, `${words} `, h("a", { href: `export/${name}`, download: name }, name)), text, copy] : [];
  }));
}

function copyText(source, button) {
  const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 2000); };
  const select = () => { getSelection().selectAllChildren(source); say("The text is selected: copy it with Ctrl+C."); };
  if (navigator.clipboard) navigator.clipboard.writeText(source.textContent).then(done, select);
  else select();
}

async function refit() {
  try { await ask("refit", {}); } catch (error) { failed(error, refit); return; }
  Object.assign(state, { stage: "fitting" });
  refitting = true;
  say("Fitting again, with the decisions …");
  pollSoon();
}

// ---- a dropped file -------------------------------------------------------------------------------------

async function open(file) {
  if ($("view-waiting").hidden) {
    warn("This page has a file already. To read another one, run dissensus open with its name.");
    return;
  }
  calm();
  say(`Reading ${file.name}`);
  try { await ask(`drop?name=${encodeURIComponent(file.name)}`, file, "application/octet-stream"); } catch (error) {
    say("");
    warn(`${error.message.replace(/\.$/, "")}. Choose another file, or correct this one and drop it again.`);
    return;
  }
  pollSoon();
}

// ---- an item --------------------------------------------------------------------------------------------

function quoted(label) {
  return Array.isArray(label) ? label.map(quoted).join(", ") || "none" : `‘${label}’`;
}

function words(decision) {
  return decision.unsure ? "unsure" : quoted(decision.label);
}

const multi = () => state.kind === "multi";

function showCounts() {
  const { decided, to_decide: all, unsure } = state;
  $("decided").max = Math.max(all, 1);
  $("decided").value = item && !item.beyond ? item.position - 1 : all;
  $("decided-words").textContent = `${whole(decided)} decided${unsure ? `, ${whole(unsure)} unsure` : ""}`;
  $("undo").disabled = !state.can_undo;
}

function setBusy(value, clicks = settled) {
  busy = value;
  settled = clicks;
  $("view-decide").setAttribute("aria-busy", String(busy || !settled));
}

// Show an item that is asked for, and take no decision until it has been on screen for a moment.
async function load(source) {
  setBusy(true);
  const now = { version: state.version, line: Math.max(shown.line, line()) };
  try {
    const found = await source();
    shown = now;
    show(found);
    setBusy(busy, false);
    setTimeout(() => setBusy(busy, true), SETTLING);
  } catch (error) { failed(error, () => load(source)); }
  setBusy(false);
}

const advance = () => load(() => ask("next", { skip: skipped }));
const itemOf = (id) => ask(`item?id=${encodeURIComponent(id)}`);

function show(found) {
  const first = !item && $("finished").hidden;
  calm();
  item = found.item === null ? null : found;
  $("item").hidden = !item;
  $("finished").hidden = Boolean(item);
  showCounts();
  if (item) {
    draft = { note: "", ticks: [], none: false, ...drafts.get(item.item) };
    $("item-title").replaceChildren(...place());
    $("subject").replaceChildren(...subject());
    $("note").value = draft.note;
    $("filter").value = "";
    $("filter-line").hidden = item.answers.length <= N_KEYS;
    setClasses(item.answers.map((answer) => answer.label), state.kind === "ordinal");
    showAnswers();
  } else {
    $("item-title").textContent = "Nothing is left to decide";
    const file = state.file ? ` The decisions are in ${state.file}.` : "";
    $("finished-words").textContent = `You decided ${whole(state.decided)} items${state.unsure ? ` and marked ${whole(state.unsure)} as unsure` : ""}.${file}`;
  }
  if (!first && view() === "decide") {
    $("item-title").focus({ preventScroll: true });
    scrollTo({ top: 0, behavior: "instant" });
  }
}

function place() {
  const id = h("bdi", { class: "id" }, item.item);
  if (item.beyond) return ["Further item ", id, h("span", { class: "note" }, ` (the ${whole(item.of)} items to adjudicate are done or skipped; of the others, the most uncertain comes first)`)];
  return [`Item ${whole(item.position)} of ${whole(item.of)} to adjudicate `, id];
}

// Texts, images and other columns of the item.
function subject() {
  const format = asWritten ? null : markdown;
  const text = (content) => { const body = fullText(content, format); body.dir = "auto"; return body; };
  const pictures = item.images.map((address, n) => picture(address, `Image ${n + 1} of ${item.images.length}`));
  const columns = Object.entries(item.columns || {});
  const toggle = h("button", { type: "button", class: "take", "aria-pressed": String(asWritten), onclick: () => {
    asWritten = !asWritten;
    $("subject").replaceChildren(...subject());
    const again = $("subject").querySelector(".take");
    if (again) again.focus();
  } }, "Plain text");
  const texts = [
    item.text ? h("div", { class: "card" }, text(item.text)) : null,
    item.sides ? h("div", { class: "sides" }, ...item.sides.map((side, n) => h("div", { class: "card" },
      h("h3", {}, n ? "Right" : "Left"), text(side)))) : null,
  ].filter(Boolean);
  const isFormatted = asWritten || texts.some((part) => part.querySelector(".markdown :not(p), .markdown .heading"));
  return [
    ...texts, ...pictures,
    isFormatted ? h("div", { class: "under" }, toggle) : null,
    columns.length ? fold("Other columns", () => h("dl", { class: "fields" }, ...columns.flatMap(([name, value]) => [
      h("dt", { dir: "auto" }, name), h("dd", { dir: "auto" }, String(value))]))) : null,
    texts.length || pictures.length || columns.length ? null : h("p", { class: "note" }, "The file has no text for this item."),
  ].filter(Boolean);
}

function picture(address, title) {
  const image = h("img", { src: address, alt: title, onerror: () => image.replaceWith(h("p", { class: "note" }, `${title} could not be loaded.`)) });
  return h("p", { class: "picture" }, image);
}

// All that the model's numbers and the draft change; the element in focus stays in focus.
function showAnswers() {
  const { key } = document.activeElement.dataset;
  $("answers").replaceChildren(...item.answers.map(answerRow), ...(multi() ? [tick(-1)] : []));
  $("answers").classList.toggle("many", item.answers.length > N_KEYS);
  filterAnswers();
  $("confirm").hidden = !multi();
  $("explained").hidden = blind;
  $("with-interval").hidden = item.answers.every((answer) => answer.low === null);
  $("with-skill").hidden = item.answers.every((answer) => answer.who.every((person) => person.skill === null));
  $("why").textContent = blind ? "" : item.why;
  $("likely").replaceChildren(...(blind ? [] : likely()));
  $("blind").setAttribute("aria-pressed", String(blind));
  const { decision } = item;
  $("decision").hidden = !decision;
  $("decision").textContent = decision ? `Decided: ${words(decision)}${decision.note ? `, with the note “${decision.note}”` : ""}` : "";
  const same = key && $("answers").querySelector(`[data-key="${key}"]`);
  if (same) same.focus({ preventScroll: true });
}

function answerRow(answer, p) {
  const evidence = blind ? null : h("div", { class: "evidence" }, shareBar(answer, p),
    h("span", { class: "numbers" }, percent(answer.share), interval(answer)), who(answer));
  const row = h("li", { class: "answer" }, multi() ? tick(p) : choice(answer, p), evidence);
  row.dataset.label = answer.label.toLowerCase();
  return row;
}

const keyOf = (p) => (p < N_KEYS ? h("kbd", { "aria-hidden": "true" }, String(p + 1)) : h("span", { class: "no-key" }));

function choice(answer, p) {
  return h("button", { type: "button", class: "choice", "data-key": String(p), "aria-keyshortcuts": p < N_KEYS ? String(p + 1) : null,
    onclick: (event) => { if (settled || !event.detail) decide(answer.label); } }, keyOf(p), swatch(p), h("bdi", {}, answer.label));
}

// A box to tick for a member of the answer; -1: for the empty answer.
function tick(p) {
  const none = p < 0;
  const box = h("input", { type: "checkbox", "data-key": String(p), onchange: () => toggle(p) });
  box.checked = none ? draft.none : draft.ticks.includes(item.answers[p].label);
  const label = h("label", { class: "choice" }, box, none ? h("kbd", { "aria-hidden": "true" }, "0") : keyOf(p),
    ...(none ? ["none of these"] : [swatch(p), h("bdi", {}, item.answers[p].label)]));
  return none ? h("li", { class: "answer none" }, label) : label;
}

function toggle(p) {
  const { label } = item.answers[p] || {};
  if (p < 0) Object.assign(draft, { none: !draft.none, ticks: [] });
  else draft.ticks = draft.ticks.includes(label) ? draft.ticks.filter((one) => one !== label) : [...draft.ticks, label];
  if (draft.ticks.length) draft.none = false;
  keepDraft();
  showAnswers();
}

function interval({ low, high }) {
  return low === null ? null : h("span", { class: "interval", title: "90 % interval" }, ` ${percent(low).replace(" %", "")}–${percent(high)}`);
}

function shareBar({ share, low, high }, p) {
  const bar = meter(share, false, p);
  if (low !== null) {
    const reach = h("i", { class: "reach" });
    reach.style.left = `${100 * low}%`;
    reach.style.width = `${100 * (high - low)}%`;
    bar.append(reach);
  }
  return bar;
}

function who({ n, who: people }) {
  if (!n) return null;
  const named = people.slice(0, MAX_NAMES).map(({ name, skill }) => h("span", { class: "annotator" }, h("bdi", {}, name),
    skill === null ? null : h("span", { class: "skill", title: "Skill: probability that a label of this annotator is right" }, ` (${percent(skill)})`)));
  const more = people.length > MAX_NAMES ? h("span", {}, `and ${whole(people.length - MAX_NAMES)} more`) : null;
  return h("p", { class: "who" }, h("span", {}, `${whole(n)} label${n === 1 ? "" : "s"}${people.length ? ":" : ""}`), ...named, more);
}

function likely() {
  const known = item.answers.filter((answer) => answer.right !== null);
  if (!known.length) return [];
  const chosen = known.filter((answer) => answer.right >= 0.5);
  const named = chosen.map((answer) => `‘${answer.label}’ (${percent(answer.right)})`).join(", ");
  return [h("span", {}, "Most likely right, with annotators weighted by skill: "), h("strong", { dir: "auto" }, named || (multi() ? "none" : "no class reaches 50 %"))];
}

function filterAnswers() {
  const query = $("filter").value.trim().toLowerCase();
  let first = null;
  for (const row of $("answers").children) {
    row.hidden = Boolean(query) && !(row.dataset.label || "").includes(query);
    if (query && !row.hidden) first = first || row;
    row.classList.toggle("first", row === first);
  }
  return first;
}

// ---- decisions ------------------------------------------------------------------------------------------

function keepDraft() {
  draft.note = $("note").value;
  if (inProgress()) drafts.set(item.item, draft);
  else drafts.delete(item.item);
  remember("drafts", Object.fromEntries(drafts));
}

function inProgress() {
  return Boolean(draft.note.trim() || draft.ticks.length || draft.none);
}

function decide(label, unsure = false) {
  if (!item || busy) return;
  keepDraft();
  save({ item: item.item, label, unsure, note: draft.note.trim() });
}

function confirmTicks() {
  if (!item || busy) return;
  if (draft.ticks.length || draft.none) {
    decide(item.answers.map((answer) => answer.label).filter((label) => draft.ticks.includes(label)));
    return;
  }
  toggle(-1);
  say("Nothing was ticked, so ‘none of these’ is ticked now: save again to confirm.");
}

async function save(decision) {
  setBusy(true);
  calm();
  let saved;
  try { saved = await ask("decide", decision); } catch (error) {
    setBusy(false);
    say("");
    warn(`Not saved: ${error.message}`, "Try again", () => { if (item && item.item === decision.item && !busy) save(decision); });
    return;
  }
  shown.line = Math.max(shown.line, saved.seq);
  Object.assign(state, { decided: saved.decided, unsure: saved.unsure, can_undo: true });
  drafts.delete(decision.item);
  remember("drafts", Object.fromEntries(drafts));
  say(`Saved: ${words(decision)}`, ` for ${decision.item}${saved.replaced ? ", in place of the earlier decision" : ""}`);
  await advance();
  pollSoon();
}

function skip() {
  if (!item || busy) return;
  skipped.push(item.item);
  say(`Skipped: ${item.item}`);
  advance();
}

async function undo() {
  if (busy || !state.can_undo) return;
  setBusy(true);
  let undone;
  try { undone = await ask("undo", { seq: shown.line }); } catch (error) {
    setBusy(false);
    warn(error.message);
    return;
  }
  shown.line = Math.max(shown.line, undone.seq);
  skipped = skipped.filter((id) => id !== undone.item);
  if (undone.note) drafts.set(undone.item, { note: undone.note, ticks: [], none: false });
  await load(() => itemOf(undone.item));
  say(`Undone: ${undone.item}`, item && item.decision ? "; the earlier decision counts again" : " is open again");
  pollSoon();
}

// New numbers for the item on screen; or a decision on it that was made in another tab.
async function refresh() {
  const before = item;
  const now = { version: state.version, line: line() };
  let found;
  try { found = await itemOf(before.item); } catch { return; } // the next poll tells
  if (busy || item !== before) return;
  shown = now;
  item = found;
  $("item-title").replaceChildren(...place());
  showAnswers();
  if (!found.decision || (before.decision && before.decision.seq >= found.decision.seq)) return;
  // the item stays, so that no key that is pressed now decides another one
  warn(`This item was decided in another tab: ${words(found.decision)}. A decision here would replace it.`, "Next item", advance);
}

// ---- keys -----------------------------------------------------------------------------------------------

const ACTIONS = {
  u: () => decide(null, true),
  n: skip,
  z: undo,
  b: () => { blind = !blind; remember("blind", blind); if (item) showAnswers(); },
  m: () => $("note").focus(),
  "/": () => $("filter").focus(),
  "?": () => $("keys").showModal(),
};

function onKey(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("keys").open) return;
  const control = target.closest("button, a, summary, input[type=file]");
  if (target.closest("textarea, select, input:not([type=checkbox], [type=file])")) {
    if (key === "Escape") $("item-title").focus({ preventScroll: true });
    return;
  }
  if (event.repeat) { if (key === "Enter" && control) event.preventDefault(); return; }
  if (view() !== "decide" && key !== "?") return;
  // the digit itself, or its key on keyboards that need shift for it
  const digit = /^\d$/.test(key) ? key : !event.shiftKey && (/^Digit(\d)$/.exec(event.code) || [])[1];
  let action = ACTIONS[key];
  if (key !== "?" && (!item || (key === "/" && $("filter-line").hidden))) action = key === "z" ? undo : null;
  else if (!action && digit) action = chooser(Number(digit) - 1);
  else if (key === "Enter" && multi() && !control) action = confirmTicks;
  if (!action) return;
  event.preventDefault();
  action();
}

function chooser(p) {
  if (multi()) return p < item.answers.length ? () => toggle(p) : null;
  return item.answers[p] ? () => decide(item.answers[p].label) : null;
}

$("filter").addEventListener("keydown", (event) => {
  const first = filterAnswers();
  if (event.key !== "Enter" || event.repeat || event.isComposing || !first) return;
  event.preventDefault();
  $("filter").value = "";
  first.querySelector(".choice").click();
  filterAnswers();
});
$("filter").addEventListener("input", filterAnswers);
$("note").addEventListener("input", keepDraft);
$("confirm").addEventListener("click", confirmTicks);
$("unsure").addEventListener("click", ACTIONS.u);
$("refit").addEventListener("click", refit);
$("close").addEventListener("click", () => $("keys").close());
for (const [id, key] of [["next", "n"], ["undo", "z"], ["blind", "b"], ["help", "?"]]) $(id).addEventListener("click", ACTIONS[key]);
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  (view() === "decide" ? $("item-title") : $("main").querySelector("section:not([hidden]) :is(h2, a, button, iframe)")).focus();
});
$("file").addEventListener("change", (event) => { if (event.target.files[0]) open(event.target.files[0]); event.target.value = ""; });
for (const name of ["dragover", "drop", "dragleave"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    $("zone").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
  });
}
$("files").replaceChildren(...FILES.map(([name, use]) => h("li", {}, h("a", { href: `export/${name}`, download: name }, name), h("span", {}, ...inline(use)))));
document.addEventListener("keydown", onKey);
addEventListener("hashchange", () => { showView(); showTexts(); });
poll();
