// Map of the items, in which similar items are close. Point at an item, or move with the arrow keys.

const MARGIN = 18;

class ItemMap {
  constructor() {
    this.canvas = h("canvas", { tabindex: "0", role: "img", id: "map-canvas",
      "aria-label": "Map of the items. Use the arrow keys to move between items, and Enter to open one." });
    this.bubble = h("div", { class: "bubble", id: "map-bubble", hidden: "" });
    this.said = h("span", { class: "sr", role: "status" });
    this.frame = h("div", { class: "map" }, this.canvas, this.bubble, this.said);
    this.key = "label";
    this.current = -1;
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.show(-1));
    this.canvas.addEventListener("blur", () => this.show(-1));
    this.canvas.addEventListener("dblclick", () => this.current >= 0 && itemTable.reveal(this.current));
    this.canvas.addEventListener("keydown", (event) => this.walk(event));
  }

  choices() {
    return [["label", "label"], clusters && ["cluster", "cluster"], ["agreed", "agreement"]].filter(Boolean);
  }

  element() {
    const select = h("select", { id: "map-colour", onchange: (event) => { this.key = event.target.value; this.draw(); } },
      ...this.choices().map(([key, title]) => h("option", { value: key }, title)));
    this.legend = h("div");
    return [h("div", { class: "tools" }, h("label", { for: select.id }, "Colour by", select)), this.legend, this.frame];
  }

  start() {
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    dark.addEventListener("change", () => this.draw());
  }

  colours() {
    if (this.key === "label") return (i) => colour(items.label[i]);
    if (this.key === "cluster") return (i) => COLOURS[items.cluster[i] % MAP_COLOURS];
    const values = items[this.key];
    const most = values.reduce((a, b) => Math.max(a, b), 1e-9);
    const scale = scaleOf("much");
    return (i) => `rgb(${along(scale, 0.25 + (0.75 * values[i]) / most).join(",")})`;
  }

  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.x = items.id.map((_, i) => MARGIN + ((width - 2 * MARGIN) * data.map.x[i]) / 1000);
    this.y = items.id.map((_, i) => height - MARGIN - ((height - 2 * MARGIN) * data.map.y[i]) / 1000);
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const radius = M > 5000 ? 1.8 : M > 800 ? 2.8 : 4;
    const paintOf = this.colours();
    pen.globalAlpha = M > 800 ? 0.65 : 0.85;
    for (let i = 0; i < M; i += 1) {
      pen.fillStyle = paintOf(i);
      pen.beginPath();
      pen.arc(this.x[i], this.y[i], radius, 0, 6.2832);
      pen.fill();
    }
    this.ring(pen, radius);
    this.explain();
  }

  ring(pen, radius) {
    if (this.current < 0) return;
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeStyle = getComputedStyle(document.body).color;
    pen.beginPath();
    pen.arc(this.x[this.current], this.y[this.current], radius + 4, 0, 6.2832);
    pen.stroke();
  }

  explain() {
    if (this.key === "label") this.legend.replaceChildren(legend());
    else if (this.key === "cluster") {
      const again = clusters.items.length > MAP_COLOURS ? " (colours repeat after eight)" : "";
      this.legend.replaceChildren(h("p", { class: "note" }, `One colour per cluster${again}.`));
    } else this.legend.replaceChildren(h("p", { class: "note" }, "Stronger colours mean more agreement."));
  }

  nearest(x, y, reach) {
    let best = -1;
    let least = reach * reach;
    for (let i = 0; i < M; i += 1) {
      const distance = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    this.show(this.nearest(event.clientX - box.left, event.clientY - box.top, 24));
  }

  // Move to the nearest item in the direction of the arrow.
  walk(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Enter" && this.current >= 0) itemTable.reveal(this.current);
    if (event.key === "Escape") this.show(-1);
    if (!arrows[event.key]) return;
    event.preventDefault();
    if (this.current < 0) { this.show(0); return; }
    const [dx, dy] = arrows[event.key];
    let best = -1;
    let least = Infinity;
    for (let i = 0; i < M; i += 1) {
      const x = this.x[i] - this.x[this.current];
      const y = this.y[i] - this.y[this.current];
      const ahead = x * dx + y * dy;
      const aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (ahead > 0.5 && ahead >= aside && ahead + 2 * aside < least) { least = ahead + 2 * aside; best = i; }
    }
    if (best >= 0) this.show(best);
  }

  show(i) {
    if (i === this.current) return;
    this.current = i;
    this.bubble.hidden = i < 0;
    this.draw();
    if (i < 0) { this.said.textContent = ""; return; }
    const words = classes.map((name, p) => [items.p[i * P + p], name]).sort((a, b) => b[0] - a[0]).slice(0, 3)
      .filter((one) => one[0] >= 5).map(([share, name]) => `${name} ${percent(share / 1000)}`).join(", ");
    this.bubble.replaceChildren(h("div", { class: "clamp" }, itemText(i)), bar(shares(i), "Distribution"),
      h("div", { class: "note" }, `${words} · ${whole(items.n[i])} labels · ${items.id[i]}`));
    this.said.textContent = `${itemText(i)}: ${words}`;
    const { width, height } = this.canvas.getBoundingClientRect();
    const [w, tall] = [this.bubble.offsetWidth, this.bubble.offsetHeight];
    const left = this.x[i] + 14 + w > width ? this.x[i] - 14 - w : this.x[i] + 14;
    const above = this.y[i] + 14 + tall > height ? this.y[i] - 14 - tall : this.y[i] + 14;
    this.bubble.style.left = `${Math.max(4, Math.min(left, width - w - 4))}px`;
    this.bubble.style.top = `${Math.max(4, above)}px`;
  }
}

function showMap() {
  const map = new ItemMap();
  section("map", "Map", `Every point is an item, and similar items are close together. The axes are ${data.map.words}.`, ...map.element());
  map.start();
}
