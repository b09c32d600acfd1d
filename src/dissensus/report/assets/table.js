// A table with sorting, search, filters, expandable rows and CSV download. Only one page of rows is in the
// document at a time.

const tables = {};

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

class DataTable {
  // columns: {key, title, help, value(i), cell(i), number, minor, wide, csv(i)}
  // presets: {key, title, words, keep(i), sort, down, quiet}; filters: {title, choices() or none, keep(choice)}
  constructor({ id, caption, columns, size, text, detail, presets, filters = [], more = [], command = null, pageSize = 20 }) {
    Object.assign(this, { id, columns, size, text, detail, presets, filters, more, command, pageSize });
    this.chosen = new Map();
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
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of ${caption.toLowerCase()}` }, this.table), this.pager);
    this.lower = null;
    tables[id.replace("-table", "")] = this;
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
    const take = h("button", { type: "button", class: "take", onclick: () => this.save() }, "Download CSV");
    const again = this.command ? copyButton(() => this.command(this.presets[this.place] || {}), "Copy a command for this table") : null;
    return h("div", {},
      this.chips.length > 1 ? h("div", { class: "tools chips", role: "group", "aria-label": "Show" }, ...this.chips) : null,
      h("div", { class: "tools" }, h("label", { class: "search", for: field.id }, "Search", field),
        ...this.filters.map((filter, place) => this.selector(filter, place)), h("span", { class: "ends" }, take, again)));
  }

  // A list of choices or, for very many, a field with completion.
  selector(filter, place) {
    const id = `${this.id}-filter-${place}`;
    const set = (value) => {
      const keep = value === "" ? null : filter.keep(value);
      if (keep) this.chosen.set(place, keep);
      else this.chosen.delete(place);
      this.page = 0;
      this.refresh();
    };
    let field;
    if (filter.many) {
      const list = h("datalist", { id: `${id}-list` });
      const fill = () => { if (!list.childNodes.length) list.append(...filter.choices.map(([value]) => h("option", { value }))); };
      field = h("span", {}, h("input", { type: "search", id, list: list.id, autocomplete: "off", class: "short", onfocus: fill,
        oninput: (event) => set(event.target.value) }), list);
    } else {
      field = h("select", { id, onchange: (event) => set(event.target.value) }, h("option", { value: "" }, "any"),
        ...filter.choices.map(([value, title]) => h("option", { value }, title)));
    }
    return h("label", { for: id }, filter.title, field);
  }

  choose(place) {
    const preset = this.presets[place];
    this.place = place;
    this.chips.forEach((chip, i) => {
      chip.setAttribute("aria-pressed", String(i === place));
      chip.hidden = Boolean(this.presets[i].quiet) && i !== place;
    });
    this.keep = preset.keep || null;
    this.words.textContent = preset.words || "";
    this.sort = preset.sort ? { key: preset.sort, down: Boolean(preset.down) } : null;
    this.page = 0;
    this.refresh();
  }

  // Show the rows that a number or sentence elsewhere refers to.
  show(key) {
    this.chosen.clear();
    for (const field of this.element.querySelectorAll("input, select")) field.value = "";
    this.query = "";
    this.choose(Math.max(0, this.presets.findIndex((preset) => preset.key === key)));
  }

  // Download the rows shown, in their order.
  save() {
    const columns = this.columns.concat(this.more.filter((column) => !column.hidden));
    const value = (column, i) => (column.csv || column.value)(i);
    download(this.id.replace("-table", ""), [columns.map((column) => column.key),
      ...this.rows.map((i) => columns.map((column) => value(column, i)))]);
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
    const keeps = [this.keep, ...this.chosen.values()].filter(Boolean);
    for (let i = 0; i < this.size; i += 1) {
      if (keeps.every((keep) => keep(i)) && (!this.query || this.lower[i].includes(this.query))) rows.push(i);
    }
    this.rows = this.sorted(rows);
    this.render();
  }

  // Sort keys: numbers as they are, texts by their rank.
  keysOf(column) {
    const values = Array.from({ length: this.size }, (_, i) => column.value(i));
    if (!values.some((value) => typeof value === "string")) return values;
    const order = [...new Set(values)].sort(collator.compare);
    const place = new Map(order.map((value, i) => [value, i]));
    return values.map((value) => place.get(value));
  }

  sorted(rows) {
    if (!this.sort) return rows;
    const column = this.columns.concat(this.more).find((one) => one.key === this.sort.key);
    column.keys = column.keys || this.keysOf(column);
    const { keys } = column;
    const sign = this.sort.down ? -1 : 1;
    const missing = (key) => key === null || key === undefined;
    return rows.sort((a, b) => {
      if (missing(keys[a]) || missing(keys[b])) return missing(keys[a]) - missing(keys[b]) || a - b;
      return sign * (keys[a] - keys[b]) || a - b;
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
      ? `${whole(start + 1)}–${whole(start + shown.length)} of ${whole(n)}` : "No matches.";
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
    // A click anywhere in the row opens it, except on controls or selected text.
    const row = h("tr", { class: open ? "row open" : "row", "data-row": i, onclick: (event) => {
      if (!event.target.closest("button, a, input, select") && !String(getSelection())) this.open(i);
    } }, ...cells);
    if (!open) return [row];
    return [row, h("tr", { class: "detail" }, h("td", { colspan: this.columns.length }, this.detail(i)))];
  }

  open(i) {
    if (!this.opened.delete(i)) this.opened.add(i);
    this.render();
    const row = this.body.querySelector(`tr[data-row="${i}"] button`);
    if (row) row.focus();
  }

  // Scroll to a row and open it, whatever filter is active.
  reveal(i) {
    this.show(this.presets[0].key);
    this.page = Math.max(0, Math.floor(this.rows.indexOf(i) / this.pageSize));
    this.opened.add(i);
    this.render();
    const row = this.body.querySelector(`tr[data-row="${i}"] button`);
    row.scrollIntoView({ block: "center" });
    row.focus();
  }
}
