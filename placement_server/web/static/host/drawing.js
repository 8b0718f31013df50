// The drawing of a host: cells side by side, with their CPUs and memory, and below them what hangs on PCIe.

import { count, element, pageAddress } from "../dom.js";
import { hideTip, showTip } from "../tip.js";
import { ConsumerColours } from "./colours.js";
import { coresBox } from "./cores.js";
import { figure } from "./figures.js";
import { devices, pageSize, preorder, treeOf } from "./tree.js";

/**
 * Return the drawing of the tree that the API shows. `marked` is a consumer of which all parts stand out; `coreCells`
 * are cores as the agent reports them.
 */
export function drawing(body, marked = null, coreCells = []) {
  const root = treeOf(body);
  const consumers = Object.keys(body.allocations);
  const colours = new ConsumerColours(consumers);
  const cells = preorder(root).filter((provider) => provider.kind === "cell");
  const made = element("div", { class: "host-drawing" },
    box(root, root.label, "whole", colours),
    cells.length
      ? element("div", { class: "cells" }, cells.map((cell) => box(cell, cell.label, "cell", colours)))
      : null,
    coreCells.length ? coresBox(coreCells, consumers, colours) : null);
  respond(made, body.allocations);
  if (marked) emphasise(made, marked);
  return made;
}

/** Return a box of a provider with its amounts, pages and devices, but without the cells below it. */
function box(provider, title, kind, colours) {
  const pages = provider.children.filter((child) => child.kind === "pages").sort((a, b) => a.pageSize - b.pageSize);
  const below = devices(provider);
  return element("section", { class: `box ${kind}${provider.isBroken || provider.isGone ? " is-broken" : ""}`, "data-name": provider.name, "data-traits": provider.traits.join(", ") },
    element(kind === "device" ? "h4" : "h3", {}, title, provider.model ? element("span", { class: "faint" }, ` ${provider.model}`) : null),
    provider.amounts.map((amount) => figure(provider, amount, amount.name, colours)),
    pages.flatMap((child) => child.amounts.map((amount) => (
      figure(child, amount, `${amount.name} in pages of ${pageSize(child.pageSize)}`, colours)))),
    below.length ? element("div", { class: "devices" }, below.map((child) => box(child, child.label, "device", colours))) : null);
}

/** Say under the pointer who holds what, and lead to the consumer. */
function respond(made, allocations) {
  made.addEventListener("mousemove", (event) => {
    const { consumer } = event.target.dataset;
    emphasise(made, consumer ?? made.dataset.marked ?? null, false);
    if (consumer) showTip(event, ...described(consumer, allocations[consumer], made));
    else if (event.target.closest(".square, .part")) showTip(event, meaning(event.target));
    else if (event.target.closest("h3, h4")) showTip(event, ...naming(event.target.closest(".box").dataset));
    else hideTip();
  });
  made.addEventListener("mouseleave", () => {
    emphasise(made, made.dataset.marked ?? null, false);
    hideTip();
  });
  made.addEventListener("click", (event) => {
    const { consumer } = event.target.dataset;
    if (consumer) location.hash = pageAddress("consumer", [consumer]);
  });
}

function naming({ name, traits }) {
  return [element("strong", {}, name), element("div", { class: "faint" }, traits || "no traits")];
}

function meaning(part) {
  return ["free", "reserved", "broken"].find((name) => part.classList.contains(name)) ?? "in use";
}

function described(consumer, record, made) {
  const providers = Object.values(record.allocations);
  const sums = {};
  for (const { resources } of providers) {
    for (const [name, amount] of Object.entries(resources)) sums[name] = (sums[name] ?? 0) + amount;
  }
  return [
    element("strong", {}, consumer),
    element("div", {}, `${record.consumer_type} of project ${record.project_id}`),
    element("div", {}, Object.entries(sums).map(([name, amount]) => `${name}: ${amount}`).join(", ")),
    element("div", { class: "faint" }, `from ${count(providers.length, "provider")}`),
  ];
}

/** Let all parts of a consumer stand out, or none. */
export function emphasise(made, consumer, isLasting = true) {
  if (isLasting) {
    if (consumer) made.dataset.marked = consumer;
    else delete made.dataset.marked;
  }
  made.classList.toggle("has-mark", Boolean(consumer));
  for (const part of made.querySelectorAll(".held")) {
    part.classList.toggle("marked", part.dataset.consumer === consumer);
  }
}

/** Return the explanation of squares and bars. */
export function legend() {
  const kinds = [["held", "in use, a colour for each consumer"], ["free", "free"], ["reserved", "reserved"], ["broken", "broken"]];
  return element("ul", { class: "legend", "aria-label": "Squares and bars" }, kinds.map(([kind, text]) => (
    element("li", {}, element("span", { class: `square ${kind}` }), text))));
}

export { treeOf, preorder };
