// Cores with dedicated CPUs, and which guest has each, as the agent of the host last reported them.

import { element } from "../dom.js";

/**
 * Return the box of cores. `cells` are {id, cores}, where a core is a list of CPUs, each with the first digits of its
 * guest's uuid, or null. `colours` are those of the consumers.
 */
export function coresBox(cells, consumers, colours) {
  return element("section", { class: "box cores" },
    element("h3", {}, "Cores with dedicated CPUs"),
    cells.map(({ id, cores }) => cellFigure(id, named(cores, consumers), colours)));
}

/** Return the cores with the whole uuid of each guest that holds something of the host. */
function named(cores, consumers) {
  return cores.map((core) => core.map(([cpu, guest]) => ({
    cpu, guest, consumer: guest && consumers.find((consumer) => consumer.startsWith(guest)),
  })));
}

function cellFigure(id, cores, colours) {
  const numbers = cores.map((core) => `(${core.map(({ cpu }) => cpu).join(" ")})`).join("");
  const spoken = cores.flat().map(({ cpu, guest, consumer }) => `${cpu} ${guest ? `by ${consumer ?? guest}` : "free"}`);
  return element("div", { class: "figure" },
    element("div", { class: "figure-title" }, element("span", {}, `Cell ${id}`), element("span", { class: "faint" }, numbers)),
    element("div", { role: "img", "aria-label": `CPUs of cell ${id}: ${spoken.join(", ")}`, class: "squares" },
      cores.map((core) => element("span", { class: "core" }, core.map((entry) => square(entry, colours))))));
}

function square({ guest, consumer }, colours) {
  const made = element("span", { class: `square ${guest ? "" : "free"}` });
  if (consumer) colours.paint(made, consumer);
  else if (guest) made.classList.add("other");
  return made;
}
