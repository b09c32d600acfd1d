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

function runName() {
  return data.run ? shell(data.run) : "RUN";
}
