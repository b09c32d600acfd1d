// The page of a comparison of judges: every part is a section.

function quote(i) {
  return h("blockquote", {}, h("p", {}, itemText(i) || items.id[i]), items.text ? h("p", { class: "id" }, items.id[i]) : null);
}

document.getElementById("amounts").textContent = data.amounts;
for (const [id, title, lead, content] of judgeParts()) section(id, title, lead, ...content);
navigation();
if (data.command) document.getElementById("main").append(h("h2", {}, "Command"), h("pre", { id: "command", tabindex: "0" }, data.command));
document.documentElement.dataset.ready = "yes";
