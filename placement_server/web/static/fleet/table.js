// The hosts as a table, a part at a time: the map for those who do not see it or use no pointer.

import { element, number, pageLink, percent, renew, titleCells } from "../dom.js";
import { share } from "./hosts.js";
import { level } from "./map.js";

const ROWS = 50;

export class HostTable {
  constructor() {
    this.start = 0;
    this.hosts = [];
    this.caption = element("caption");
    this.head = element("thead");
    this.body = element("tbody");
    this.back = element("button", { type: "button", click: () => this.#turn(-ROWS) }, "Previous");
    this.on = element("button", { type: "button", click: () => this.#turn(ROWS) }, "Next");
    this.element = element("section", { "aria-label": "Hosts" },
      element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of hosts" },
        element("table", {}, this.caption, this.head, this.body)),
      element("p", { class: "pager" }, this.back, this.on));
  }

  draw(fleet, hosts, resourceClass) {
    this.fleet = fleet;
    this.hosts = hosts;
    this.resourceClass = resourceClass;
    this.start = Math.min(this.start, Math.max(0, Math.ceil(hosts.length / ROWS) - 1) * ROWS);
    this.#fill();
  }

  rewind() {
    this.start = 0;
  }

  #turn(by) {
    this.start += by;
    this.#fill();
  }

  #fill() {
    const end = Math.min(this.start + ROWS, this.hosts.length);
    this.caption.textContent = this.hosts.length
      ? `Hosts ${number(this.start + 1)} to ${number(end)} of ${number(this.hosts.length)}` : "No host";
    this.back.disabled = this.start === 0;
    this.on.disabled = end === this.hosts.length;
    const name = this.resourceClass;
    const titles = ["Host", `${name || "Class"} in use`, "Used", "Free", "Capacity", "Providers", "State"];
    this.head.replaceChildren(element("tr", {}, titles.map((title, column) => (
      element("th", { scope: "col", class: column > 1 && title !== "State" ? "amount" : null }, title)))));
    const rows = this.hosts.slice(this.start, end).map((host) => row(host, name, this.fleet.stateOf(host)));
    renew(this.body, () => this.body.replaceChildren(...titleCells(titles, rows)));
  }
}

function row(host, name, state) {
  const use = host.classes[name];
  const used = share(host, name);
  const amounts = use ? [use.used, Math.max(0, use.capacity - use.used), use.capacity] : ["", "", ""];
  return element("tr", {},
    element("th", { scope: "row" }, pageLink("host", host.name, host.uuid)),
    element("td", {}, use ? meter(used) : "has none"),
    [...amounts, host.providers].map((amount) => (
      element("td", { class: "amount" }, amount === "" ? "" : number(amount)))),
    element("td", {}, state));
}

function meter(used) {
  const bar = element("span", { class: `part ${level(used)}` });
  bar.style.width = `${Math.min(100, used * 100)}%`;
  return element("span", { class: "meter" }, element("span", { class: "bar", "aria-hidden": "true" }, bar), percent(used));
}
