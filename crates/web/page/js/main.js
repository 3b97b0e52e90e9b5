// Navigation and colour scheme. The URL fragment contains the whole view, so that links keep it.
import { fill } from "./common.js";
import { Overview } from "./overview.js";
import { Plot } from "./plot.js";
import { Channels, Hosts, Path, Switches } from "./status.js";

const PAGES = { overview: Overview, plot: Plot, hosts: Hosts, switches: Switches, channels: Channels, path: Path };

const main = document.getElementById("main");
let shown = { name: "", page: null };

function show() {
  const [, name, query] = /^#\/(\w+)\??(.*)$/.exec(location.hash) || [null, "overview", ""];
  const known = Object.hasOwn(PAGES, name) ? name : "overview";
  if (shown.name !== known) {
    if (shown.page) shown.page.close();
    fill(main);
    shown = { name: known, page: new PAGES[known](main, go) };
    for (const link of document.querySelectorAll("nav a")) {
      if (link.dataset.page === known) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${known[0].toUpperCase()}${known.slice(1)} – Trunkline monitor`;
  }
  shown.page.show(new URLSearchParams(query));
}

/** Opens another view; the back button returns to the previous one. */
function go(to) {
  if (to === location.hash) return;
  history.pushState(null, "", to);
  show();
}

const theme = document.getElementById("theme");

function colours() {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  dispatchEvent(new Event("colours"));
}

theme.value = localStorage.getItem("theme") || "";
theme.addEventListener("change", () => {
  localStorage.setItem("theme", theme.value);
  colours();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colours);
document.getElementById("skip").addEventListener("click", () => main.focus());
addEventListener("popstate", show);
colours();
show();
