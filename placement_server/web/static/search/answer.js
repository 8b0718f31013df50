// What the API answers to a query: where it fits and how often, or why not and what would.

import { count, element, number, pageLink } from "../dom.js";
import { scrolling } from "../host/page.js";
import { changed } from "./query.js";

const MOST = 10;
/** Fields of an inventory that may forbid an amount although it is free. */
const UNITS = ["min_unit", "max_unit", "step_size"];

/**
 * Return how often a query fits, and where.
 * An answer is {first, rest}: what is above the map, and what below it.
 */
export function places(capacity, candidates) {
  const { at_least: least, at_most: most, trees } = capacity;
  const often = least === most ? count(most, "more time") : `${number(least)} to ${count(most, "more time")}`;
  const limits = Object.entries(capacity.limited_by).map(([name, hosts]) => `${name} on ${count(hosts, "host")}`).join(", ");
  const first = [
    element("p", { class: "summary" }, `Fits ${often}, on ${count(trees.length, "host")}.`,
      limits ? element("span", { class: "faint" }, ` What runs out first: ${limits}.`) : null),
  ];
  const rest = element("div", { class: "tables" }, element("section", {}, element("h2", {}, "Most room"), scrolling("Hosts with the most room", ["Host", "Times"], trees.slice(0, MOST).map((tree) => element("tr", {},
      element("th", { scope: "row" }, pageLink("host", tree.name ?? tree.root, tree.root)),
      element("td", { class: "amount" }, tree.at_least === tree.at_most
        ? number(tree.at_most) : `${number(tree.at_least)} to ${number(tree.at_most)}`))))),
    element("section", {}, element("h2", {}, "First candidates"), scrolling("First candidates", ["Host", "Takes"], candidates.map(({ root, name, takes }) => element("tr", {},
      element("th", { scope: "row" }, pageLink("host", name, root)),
      element("td", {}, takes.map((line) => element("div", {}, line))))))));
  return { first, rest: [rest] };
}

/**
 * Return why a query fits nowhere. `onTry` gets the query with a change that somebody picked, and whether
 * disabled hosts count as well: without a condition for roots they do.
 */
export function reasons(explanation, query, nameOf, onTry) {
  const { closest, short, sentences } = explanation;
  const first = [
    element("p", { class: "summary failure" }, `Fits on none of ${count(explanation.trees, "host")}.`),
    element("h2", {}, "What would fit"),
    closest.length
      ? element("ul", { class: "changes" }, closest.map((entry, at) => element("li", {},
        element("button", { type: "button", click: () => onTry(changed(query, entry.changes), entry.changes.some((change) => "drop_root_required" in change)) }, sentences[at]),
        " ", pageLink("host", nameOf(entry.example), entry.example))))
      : element("p", {}, sentences[0]),
  ];
  const rest = [
    short.length ? element("h2", {}, "Closest to having the room") : null,
    short.length ? scrolling("Providers that lack room", ["Provider", "Class", "Asked", "Free", "Capacity", "Consumers", "Forbidden by"],
      short.map((entry) => element("tr", {},
        element("th", { scope: "row" }, pageLink("host", entry.name, entry.provider)),
        element("td", {}, entry.resource_class),
        [entry.asked, entry.free, entry.capacity, entry.held_by].map((amount) => (
          element("td", { class: "amount" }, number(amount)))),
        element("td", {}, UNITS.filter((unit) => unit in entry).map((unit) => `${unit} ${number(entry[unit])}`))))) : null,
    element("details", {}, element("summary", {}, "All that the server says"),
      element("ul", {}, sentences.map((sentence) => element("li", {}, sentence)))),
  ].filter(Boolean);
  return { first, rest };
}
