// Guests to move so that a query fits: asked for by a button, as it takes a search of its own.

import { ApiError, post } from "../api.js";
import { count, element, number, pageLink } from "../dom.js";
import { scrolling } from "../host/page.js";

const BOUNDS = { max_moves: 3, time_limit: 5 };

export class Moves {
  /** `onPlan` gets the moves of a plan, to be drawn, and what there is to say; no moves where there is no plan. */
  constructor(onPlan) {
    this.onPlan = onPlan;
    this.element = element("section", { hidden: true });
  }

  /** Offer to look for a plan, or no longer: the query fits, or is another one. */
  offer(query) {
    this.query = query;
    this.element.hidden = query === null;
    this.element.replaceChildren(element("button", { type: "button", click: () => this.#find(query) }, "Which guests to move?"));
  }

  async #find(query) {
    const button = this.element.firstElementChild;
    button.disabled = true;
    let shown;
    let moves = [];
    try {
      const room = await post("make_room", { request: query, ...BOUNDS });
      moves = room.plans[0]?.moves ?? [];
      shown = room.plans.length ? planOf(room.plans[0], room.proved) : [element("p", {}, nothing(room.proved))];
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      shown = [element("p", { class: "failure", role: "alert" }, error.message)];
    }
    // Something else may have been asked meanwhile.
    if (query !== this.query) return;
    button.disabled = false;
    this.element.replaceChildren(button, ...shown);
    this.onPlan(moves, shown[0].textContent);
  }
}

function nothing(isProved) {
  return isProved ? `No ${BOUNDS.max_moves} moves of guests make room.` : "No moves that make room were found in time.";
}

function planOf(plan, isProved) {
  const { moves, places } = plan;
  const hosts = places.map(({ to }) => to.name ?? to.root).join(", ");
  const end = isProved ? "No plan moves less." : "A plan that moves less may exist.";
  return [
    element("p", { class: "summary" }, moves.length ? `Move ${count(moves.length, "guest")}, then it fits on ${hosts}.` : `It fits on ${hosts}.`,
      element("span", { class: "faint" }, ` ${end}`)),
    scrolling("Guests to move", ["Guest", "From", "To", "Takes"], moves.map((move) => element("tr", {},
      element("th", { scope: "row" }, pageLink("consumer", move.consumer, move.consumer)),
      ...[move.from, move.to].map((tree) => element("td", {}, pageLink("host", tree.name ?? tree.root, tree.root))),
      element("td", {}, takes(move))))),
    element("details", {}, element("summary", {}, "The plan, to be copied"),
      element("pre", { tabindex: "0" }, JSON.stringify(plan, null, 2))),
  ];
}

function takes({ allocations }) {
  const sums = new Map();
  for (const { resources } of Object.values(allocations)) {
    for (const [name, amount] of Object.entries(resources)) sums.set(name, (sums.get(name) ?? 0) + amount);
  }
  return [...sums].map(([name, amount]) => `${name} ${number(amount)}`).join(", ");
}
