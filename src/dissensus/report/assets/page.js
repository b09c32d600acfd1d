// Put the sections in order, and keep the navigation in step with the reading.

function amounts() {
  const { n_items: n, n_annotators: people_, n_labels: labels } = data.data;
  const by = people_ === null ? "" : ` by ${whole(people_)} annotators`;
  document.getElementById("amounts").textContent =
    `${whole(labels)} labels${by} on ${whole(n)} items, ${P} classes · model: ${data.model}`;
}

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

amounts();
showOverview();
showClusters();
showItems();
showAnnotators();
showJudges();
showMap();
showFit();
navigation();
document.getElementById("footer").append(`Made by dissensus ${data.version}. This page is one file: it loads nothing and sends nothing.`);
document.documentElement.dataset.ready = "yes";
