// Common helpers of the pages: elements, numbers, colours and bars of the classes, tables, downloads. Text from the
// data only ever becomes a text node, never markup.

const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B3A100", "#7F7F7F"];
const TEXTURES = ["", "striped", "dotted"];

let classes = [];
let ordered = false;

function setClasses(names, inOrder) {
  classes = names;
  ordered = inOrder;
}

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function whole(number) {
  return Number(number).toLocaleString("en");
}

function decimal(number, digits) {
  return number === null || number === undefined ? "–" : Number(number).toFixed(digits);
}

function percent(share, digits = 0) {
  if (share === null || share === undefined) return "–";
  const scaled = 100 * share;
  // ties go to the even number, as in the sentences, so that 79.5 % and 20.5 % add up to 100 %
  return `${digits === 0 && scaled % 1 === 0.5 ? 2 * Math.round(scaled / 2) : scaled.toFixed(digits)} %`;
}

// Ordered classes have a diverging scale, grey in the middle; nominal classes have one colour each.
function colour(p) {
  if (!ordered) return COLOURS[p % COLOURS.length];
  return `rgb(${along(scaleOf("ordered"), p / Math.max(classes.length - 1, 1)).join(",")})`;
}

function texture(p) {
  return ordered ? "" : TEXTURES[Math.floor(p / COLOURS.length) % TEXTURES.length];
}

// Paint with the colour of a class; repainted when the colour scheme changes.
function dye(element, p) {
  element.dataset.dye = p;
  element.style.backgroundColor = colour(p);
  return element;
}

function swatch(p) {
  return dye(h("span", { class: `swatch ${texture(p)}`, "aria-hidden": "true" }), p);
}

function classLabel(p) {
  return h("span", { class: classes[p].length < 24 ? "class" : null }, swatch(p), classes[p]);
}

function legend() {
  return h("ul", { class: "legend", "aria-label": "Classes" }, ...classes.map((_, p) => h("li", {}, classLabel(p))));
}

// A stacked bar of shares, in any unit, with a text alternative.
function bar(shares, what) {
  const total = shares.reduce((sum, share) => sum + share, 0) || 1;
  const order = shares.map((_, p) => p).filter((p) => shares[p] / total >= 0.005);
  const said = order.slice().sort((a, b) => shares[b] - shares[a]);
  const words = said.map((p) => `${classes[p]} ${percent(shares[p] / total)}`).join(", ");
  const strip = h("div", { class: "bar", role: "img", "aria-label": `${what}: ${words || "none"}`, title: words });
  for (const p of order) {
    const part = h("span", { class: texture(p) });
    part.style.width = `${(100 * shares[p]) / total}%`;
    strip.append(dye(part, p));
  }
  return strip;
}

function meter(share, other, p) {
  const fill = h("span");
  if (p !== undefined) dye(fill, p);
  fill.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return h("span", { class: other ? "meter other" : "meter", "aria-hidden": "true" }, fill);
}

// Sequential and diverging colour scales, readable with every kind of colour vision.
const SCALES = {
  light: {
    much: [[255, 255, 255], [205, 224, 241], [110, 172, 214], [33, 113, 181], [8, 48, 107]],
    more: [[160, 75, 0], [224, 150, 60], [252, 220, 180], [255, 255, 255], [185, 215, 238], [80, 150, 205], [5, 80, 150]],
    ordered: [[160, 75, 0], [224, 150, 60], [190, 190, 190], [80, 150, 205], [5, 80, 150]],
  },
  dark: {
    much: [[28, 32, 36], [27, 62, 102], [40, 118, 184], [110, 178, 224], [226, 239, 250]],
    more: [[250, 180, 100], [178, 105, 30], [88, 60, 30], [28, 32, 36], [27, 62, 102], [52, 130, 196], [130, 198, 246]],
    ordered: [[250, 180, 100], [178, 105, 30], [110, 110, 110], [52, 130, 196], [130, 198, 246]],
  },
};
const dark = matchMedia("(prefers-color-scheme: dark)");

function scaleOf(name) {
  return SCALES[dark.matches ? "dark" : "light"][name];
}

function along(scale, share) {
  const place = Math.max(0, Math.min(1, share)) * (scale.length - 1);
  const low = Math.min(Math.floor(place), scale.length - 2);
  return scale[low].map((value, i) => Math.round(value + (place - low) * (scale[low + 1][i] - value)));
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Colour a cell by its value on a scale, with readable text.
function paint(cell, share, scale = "much") {
  Object.assign(cell.dataset, { share, scale });
  const rgb = along(scaleOf(scale), share);
  cell.style.backgroundColor = `rgb(${rgb.join(",")})`;
  cell.style.color = luminance(rgb) > 0.18 ? "#000" : "#fff";
  return cell;
}

dark.addEventListener("change", () => {
  for (const part of document.querySelectorAll("[data-dye]")) part.style.backgroundColor = colour(Number(part.dataset.dye));
  for (const cell of document.querySelectorAll("[data-share]")) paint(cell, Number(cell.dataset.share), cell.dataset.scale);
});

// A name that may wrap after punctuation.
function breakable(name) {
  return name.split(/(?<=[_/.:-])/).flatMap((part) => [part, h("wbr")]);
}

// The content of a fold is created when it is first opened.
function fold(title, make, id) {
  const body = h("div");
  const box = h("details", { id: id || null }, h("summary", {}, title), body);
  box.addEventListener("toggle", () => {
    if (box.open && !body.childNodes.length) body.append(...[make()].flat().filter(Boolean));
  });
  return box;
}

function scrolled(label, table) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

function plainTable(id, caption, heads, lines) {
  return h("table", { id: id || null }, caption ? h("caption", {}, caption) : null,
    h("thead", {}, h("tr", {}, ...heads.map(([title, style]) => h("th", { scope: "col", class: style || null }, title)))),
    h("tbody", {}, ...lines));
}

// A CSV cell; text that a spreadsheet would evaluate is prefixed with an apostrophe.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(name, rows) {
  const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n");
  const link = h("a", { href: URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv" })), download: `${name}.csv` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A table with a download button; numbers are exported without thousands separators and percent signs.
function offered(name, label, table) {
  const plain = (text) => {
    const bare = text.trim().replaceAll(",", "");
    return /^-?[\d.]+( %)?$/.test(bare) ? Number(bare.replace(" %", "")) : text.trim();
  };
  const save = () => download(name, [...table.rows].map((row) => [...row.cells].map((cell) => plain(cell.innerText))));
  return h("div", {}, scrolled(label, table),
    h("div", { class: "under" }, h("button", { type: "button", class: "take", onclick: save }, "Download CSV")));
}

function copyButton(text, title) {
  const button = h("button", { type: "button", class: "copy", title: text(), onclick: () => {
    const say = (word) => { button.textContent = word; setTimeout(() => { button.textContent = title; }, 2000); };
    if (!navigator.clipboard) { say(text()); return; }
    navigator.clipboard.writeText(text()).then(() => say("Copied"), () => say(text()));
  } }, title);
  return button;
}

function shell(word) {
  return /^[\w./@%+=:,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

// A small histogram of [{title, n}], with a text alternative.
function histogram(title, bins, words) {
  const most = Math.max(...bins.map((bin) => bin.n), 1);
  const width = 300 / bins.length;
  const said = bins.filter((bin) => bin.n).map((bin) => `${bin.title}: ${whole(bin.n)}`).join(", ");
  const every = Math.max(1, Math.ceil(bins.length / 6));
  const parts = bins.flatMap((bin, i) => {
    const height = bin.n ? Math.max(1.5, (76 * bin.n) / most) : 0;
    const column = svg("rect", { x: i * width + 1, y: 90 - height, width: Math.max(width - 2, 1), height, class: "column" },
      svg("title", {}, `${bin.title}: ${whole(bin.n)}`));
    const mark = i % every === 0 ? [svg("text", { x: i * width + width / 2, y: 104, "text-anchor": "middle" }, bin.short || bin.title)] : [];
    return [column, ...mark];
  });
  return h("figure", { class: "histogram" }, h("figcaption", {}, title),
    svg("svg", { viewBox: "0 0 300 108", class: "plot", role: "img", "aria-label": `${title}. ${said}` },
      svg("line", { x1: 0, y1: 90, x2: 300, y2: 90, class: "axis" }), ...parts),
    words ? h("p", { class: "note" }, words) : null);
}
