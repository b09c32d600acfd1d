// A table that sorts, searches, filters and opens its rows, one page of them in the document at a time.

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

class DataTable {
  // columns: {key, title, help, value(i), cell(i), number, minor, wide}; presets: {title, words, keep(i), sort, down}
  constructor({ id, caption, columns, size, text, detail, presets, pageSize = 20 }) {
    Object.assign(this, { id, columns, size, text, detail, presets, pageSize });
    this.page = 0;
    this.query = "";
    this.opened = new Set();
    this.keep = null;
    this.sort = null;
    this.body = h("tbody");
    this.heads = new Map(columns.map((column) => [column.key, this.head(column)]));
    this.table = h("table", { id }, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...this.heads.values())), this.body);
    this.status = h("span", { role: "status", id: `${id}-status` });
    this.pager = h("div", { class: "pages" });
    this.words = h("p", { class: "note" });
    this.element = h("div", {}, this.tools(), this.words,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table), this.pager);
    this.lower = null;
    if (presets.length) this.choose(0);
    else this.refresh();
  }

  head(column) {
    const button = h("button", { type: "button", title: column.help || null, onclick: () => this.toggle(column) },
      column.title);
    return h("th", { scope: "col", class: this.classOf(column), "aria-sort": "none" }, button);
  }

  classOf(column) {
    return [column.number && "number", column.minor && "minor", column.wide].filter(Boolean).join(" ") || null;
  }

  tools() {
    this.chips = this.presets.map((preset, place) => h("button",
      { type: "button", "aria-pressed": "false", onclick: () => this.choose(place) }, preset.title));
    const field = h("input", { type: "search", id: `${this.id}-search`, autocomplete: "off",
      oninput: (event) => this.search(event.target.value) });
    return h("div", { class: "tools" }, h("label", { class: "search", for: field.id }, "Search", field),
      this.chips.length > 1 ? h("div", { class: "chips", role: "group", "aria-label": "Show" }, ...this.chips) : null);
  }

  choose(place) {
    const preset = this.presets[place];
    this.chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(i === place)));
    this.keep = preset.keep || null;
    this.words.textContent = preset.words || "";
    this.sort = preset.sort ? { key: preset.sort, down: Boolean(preset.down) } : null;
    this.page = 0;
    this.refresh();
  }

  toggle(column) {
    const down = this.sort && this.sort.key === column.key ? !this.sort.down : Boolean(column.number);
    this.sort = { key: column.key, down };
    this.page = 0;
    this.refresh();
  }

  search(query) {
    this.query = query.trim().toLowerCase();
    this.page = 0;
    this.refresh();
  }

  refresh() {
    if (this.query && !this.lower) {
      this.lower = Array.from({ length: this.size }, (_, i) => this.text(i).toLowerCase());
    }
    const rows = [];
    for (let i = 0; i < this.size; i += 1) {
      if ((!this.keep || this.keep(i)) && (!this.query || this.lower[i].includes(this.query))) rows.push(i);
    }
    this.rows = this.sorted(rows);
    this.render();
  }

  sorted(rows) {
    if (!this.sort) return rows;
    const column = this.columns.find((one) => one.key === this.sort.key);
    const keys = new Array(this.size);
    for (const i of rows) keys[i] = column.value(i);
    const sign = this.sort.down ? -1 : 1;
    const missing = (key) => key === null || key === undefined;
    return rows.sort((a, b) => {
      if (missing(keys[a]) || missing(keys[b])) return missing(keys[a]) - missing(keys[b]) || a - b;
      const order = typeof keys[a] === "number" ? keys[a] - keys[b] : collator.compare(keys[a], keys[b]);
      return sign * order || a - b;
    });
  }

  render() {
    for (const [key, head] of this.heads) {
      const active = this.sort && this.sort.key === key;
      head.setAttribute("aria-sort", active ? (this.sort.down ? "descending" : "ascending") : "none");
    }
    const start = this.page * this.pageSize;
    const shown = this.rows.slice(start, start + this.pageSize);
    this.body.replaceChildren(...shown.flatMap((i) => this.row(i)));
    const n = this.rows.length;
    this.status.textContent = n
      ? `${whole(start + 1)}–${whole(start + shown.length)} of ${whole(n)}` : "Nothing matches.";
    this.renderPager(Math.ceil(n / this.pageSize));
  }

  renderPager(pages) {
    const step = (title, page, name) => {
      const out = page < 0 || page >= pages || page === this.page;
      const button = h("button", { type: "button", "aria-label": name, onclick: () => this.go(page) }, title);
      button.disabled = out;
      return button;
    };
    this.pager.replaceChildren(step("«", 0, "First page"), step("‹", this.page - 1, "Previous page"),
      this.status, step("›", this.page + 1, "Next page"), step("»", pages - 1, "Last page"));
  }

  go(page) {
    this.page = page;
    this.render();
  }

  row(i) {
    const open = this.opened.has(i);
    const cells = this.columns.map((column, place) => {
      const content = column.cell(i);
      if (place) return h("td", { class: this.classOf(column) }, content);
      const button = h("button", { type: "button", class: "row-open", "aria-expanded": String(open),
        onclick: () => this.open(i) }, content);
      return h("th", { scope: "row", class: this.classOf(column) }, button);
    });
    const row = h("tr", { class: open ? "open" : null, "data-row": i }, ...cells);
    if (!open) return [row];
    return [row, h("tr", { class: "detail" }, h("td", { colspan: this.columns.length }, this.detail(i)))];
  }

  open(i) {
    if (!this.opened.delete(i)) this.opened.add(i);
    this.render();
    const row = this.body.querySelector(`tr[data-row="${i}"] button`);
    if (row) row.focus();
  }

  // Bring one row into view and open it, whatever is being shown.
  reveal(i) {
    this.query = "";
    this.element.querySelector("input").value = "";
    this.choose(0);
    this.page = Math.max(0, Math.floor(this.rows.indexOf(i) / this.pageSize));
    this.opened.add(i);
    this.render();
    const row = this.body.querySelector(`tr[data-row="${i}"] button`);
    row.scrollIntoView({ block: "center" });
    row.focus();
  }
}
