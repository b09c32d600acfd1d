// Data of the report, and helpers that read them.

const data = JSON.parse(document.getElementById("data").textContent);
setClasses(data.classes, data.ordered);
const P = classes.length;
const items = data.items;
const M = items.id.length;
const clusters = data.clusters;
const { groups } = clusters;

const sections = [];

function section(id, title, lead, ...children) {
  sections.push({ id, title });
  const heading = h("h2", { id: `${id}-title` }, title);
  const body = h("section", { id, "aria-labelledby": heading.id }, heading);
  if (lead) body.append(h("p", { class: "lead" }, lead));
  body.append(...children.filter(Boolean));
  document.getElementById("main").append(body);
  return body;
}

function shares(i) {
  return items.p.slice(i * P, (i + 1) * P);
}

function itemText(i) {
  return items.text ? items.text[i] : items.id[i];
}

// Navigation that follows the reading position.
function navigation() {
  const links = sections.map(({ id, title }) => h("a", { href: `#${id}` }, title));
  document.getElementById("sections").append(h("ul", {}, ...links.map((link) => h("li", {}, link))));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links) {
        if (link.hash === `#${entry.target.id}`) {
          link.setAttribute("aria-current", "true");
          link.closest("ul").scrollLeft = link.offsetLeft - 60;
        } else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const { id } of sections) seen.observe(document.getElementById(id));
}
