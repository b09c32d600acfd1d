// A small part of Markdown, shown as elements: headings, bold, italics, code, lists, quotes, tables and web
// links. All other markup, HTML included, stays text. No pattern takes more than linear time.

const MAX_FORMATTED = 50000; // characters; a longer text is shown as it is
const MAX_DEPTH = 5; // of lists and quotes
const INLINE = new RegExp([
  "`(?<code>[^`\\n]{1,1000})`",
  "(?<![\\w*])\\*\\*(?![\\s*])(?<bold>(?:[^*\\n]|\\*(?!\\*)){1,1000})(?<!\\s)\\*\\*(?![\\w*])",
  "(?<![\\w_])__(?![\\s_])(?<strong>(?:[^_\\n]|_(?!_)){1,1000})(?<!\\s)__(?![\\w_])",
  "(?<![\\w*])\\*(?![\\s*])(?<italic>[^*\\n]{1,1000})(?<!\\s)\\*(?![\\w*])",
  "(?<![\\w_])_(?![\\s_])(?<em>[^_\\n]{1,1000})(?<!\\s)_(?![\\w_])",
  "\\[(?<words>[^\\[\\]\\n]{1,500})\\]\\((?<target>[^\\s()]{1,2000})\\)",
  "(?<bare>https?://[^\\s<>\"'()\\[\\]]{1,2000})",
].join("|"), "gu");
const FENCE = /^ {0,3}(```|~~~)/;
const HEADING = /^ {0,3}#{1,6}[ \t]+/;
const QUOTE = /^ {0,3}>[ \t]?/;
const RULE = /^\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*[ \t]*\|?$/; // below the head of a table
const MARKER = /^[ \t]*(?:[-*+]|(\d{1,9})[.)])[ \t]+(?=\S)/;

// A link to http or https; null for any other address.
function webLink(address, ...words) {
  let url;
  try { url = new URL(address); } catch { return null; }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  return h("a", { href: url.href, rel: "noopener noreferrer", target: "_blank", title: url.href }, ...words);
}

// Nodes of one piece of text. Links are not looked for within links.
function inline(text, inLink = false) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const { code, bold, strong, italic, em, words, target, bare } = match.groups;
    let node = null;
    let length = match[0].length;
    if (code) node = h("code", {}, code);
    else if (bold || strong) node = h("strong", {}, ...inline(bold || strong, inLink));
    else if (italic || em) node = h("em", {}, ...inline(italic || em, inLink));
    else if (words && !inLink) node = webLink(target, ...inline(words, true));
    else if (bare && !inLink) {
      length = bare.replace(/[.,;:!?]{1,20}$/, "").length;
      node = webLink(bare.slice(0, length), bare.slice(0, length));
    }
    if (!node) continue;
    nodes.push(text.slice(end, match.index), node);
    end = match.index + length;
  }
  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== "");
}

// Lines from `start` for which `belongs` holds.
function run(lines, start, belongs) {
  let end = start + 1;
  while (end < lines.length && belongs(lines[end], end)) end += 1;
  return lines.slice(start, end);
}

const indent = (line) => line.length - line.trimStart().length;

// A list: lines that are indented further than its first marker belong to the item above them.
function list(lines, depth) {
  const first = indent(lines[0]);
  const number = MARKER.exec(lines[0])[1];
  const entries = [];
  for (const line of lines) {
    const marker = MARKER.exec(line);
    if (marker && indent(line) <= first) entries.push([line.slice(marker[0].length)]);
    else entries[entries.length - 1].push(line.slice(Math.min(indent(line), first + 2)));
  }
  return h(number ? "ol" : "ul", { start: number }, ...entries.map((entry) => h("li", {}, ...blocks(entry, depth + 1))));
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/)
  .map((cell) => cell.trim().replaceAll("\\|", "|"));

// Whether a line is the head of a table: the next one is a rule with as many cells.
const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && RULE.test(lines[at + 1].trim())
  && cells(lines[at]).length === cells(lines[at + 1]).length;

// A table; cells beyond its last column are shown in that column.
function table(lines) {
  const [head, , ...rows] = lines.map(cells);
  const last = head.length - 1;
  const fit = (line) => line.length > head.length ? [...line.slice(0, last), line.slice(last).join(" | ")] : line;
  const row = (line, kind) => h("tr", {}, ...fit(line).map((cell) => h(kind, {}, ...inline(cell))));
  const body = h("tbody", {}, ...rows.map((line) => row(line, "td")));
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, row(head, "th")), body));
}

function blocks(lines, depth = 0) {
  const nodes = [];
  const plain = (line, at) => line.trim() && !FENCE.test(line) && !HEADING.test(line) && !isTable(lines, at)
    && (depth >= MAX_DEPTH || !(QUOTE.test(line) || MARKER.test(line)));
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    let part = [line];
    if (fence) {
      part = run(lines, at, (other) => !other.trimStart().startsWith(fence[1]));
      nodes.push(h("pre", { tabindex: "0" }, h("code", {}, part.slice(1).join("\n"))));
      at += 1; // the closing fence
    } else if (HEADING.test(line)) {
      // a paragraph, because headings of a text are not headings of the page
      nodes.push(h("p", { class: "heading" }, ...inline(line.replace(HEADING, ""))));
    } else if (depth < MAX_DEPTH && QUOTE.test(line)) {
      part = run(lines, at, (other) => QUOTE.test(other));
      nodes.push(h("blockquote", {}, ...blocks(part.map((quoted) => quoted.replace(QUOTE, "")), depth + 1)));
    } else if (depth < MAX_DEPTH && MARKER.test(line)) {
      part = run(lines, at, (other) => MARKER.test(other) || (other.trim() && indent(other) > indent(line)));
      nodes.push(list(part, depth));
    } else if (isTable(lines, at)) {
      part = run(lines, at, (other, n) => n === at + 1 || plain(other, n));
      nodes.push(table(part));
    } else if (line.trim()) {
      part = run(lines, at, plain);
      nodes.push(h("p", {}, ...inline(part.join("\n"))));
    }
    at += part.length;
  }
  return nodes;
}

function markdown(text) {
  const formatted = text.length > MAX_FORMATTED ? [h("p", {}, text)] : blocks(text.replaceAll("\r\n", "\n").split("\n"));
  return h("div", { class: "markdown", dir: "auto" }, ...formatted);
}
