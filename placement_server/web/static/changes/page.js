// The page of what changed: the newest changes of the fleet, as they happen.

import { readOwn } from "../api.js";
import { element, entitle, pageLink, renew } from "../dom.js";
import { follow, newest } from "../following.js";
import { scrolling } from "../host/page.js";

const MOST = 200;
const AT_ONCE = 50;
const MEANINGS = {
  structure: "providers, inventories, traits or aggregates",
  usage: "allocations",
  names: "names of resource classes or traits",
};

export async function show(page, { signal }) {
  entitle("What changed");
  const kind = element("select", { change: () => list.filter(kind.value) },
    element("option", { value: "" }, "all"),
    Object.entries(MEANINGS).map(([value, text]) => element("option", { value }, text)));
  const list = new ChangeList(signal);
  const pause = element("button", { type: "button", "aria-pressed": "false", click: () => {
    const isPaused = list.toggle();
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
  } }, "Pause");
  page.append(
    element("h1", {}, "What changed"),
    element("form", { class: "filters", submit: (event) => event.preventDefault(), "aria-label": "Filters" },
      element("label", { class: "field" }, element("span", {}, "Of what"), kind),
      element("div", { class: "field last" }, pause)),
    list.element,
  );
  await follow({
    signal,
    onStart: async () => list.replace((await newest(MOST, signal)).changes),
    onChanges: (changes) => list.add(changes),
  });
}

class ChangeList {
  constructor(signal) {
    this.signal = signal;
    this.changes = [];
    this.names = new Map();
    this.wanted = "";
    this.isPaused = false;
    this.element = element("div");
  }

  filter(kind) {
    this.wanted = kind;
    this.#draw();
  }

  toggle() {
    this.isPaused = !this.isPaused;
    if (!this.isPaused) this.#draw();
    return this.isPaused;
  }

  async replace(changes) {
    this.changes = [];
    await this.add(changes);
  }

  async add(changes) {
    const known = new Set(this.changes.map(({ id }) => id));
    this.changes = [...this.changes, ...changes.filter(({ id }) => !known.has(id))].slice(-MOST);
    await this.#readNames(changes);
    if (!this.isPaused) this.#draw();
  }

  /** Read the names of hosts; where one was renamed or is gone, the newest that was seen stays. */
  async #readNames(changes) {
    const asked = [...new Set(changes.filter(({ kinds, root_provider_uuid: root }) => (
      root && (kinds.includes("structure") || !this.names.has(root)))).map((change) => change.root_provider_uuid))];
    for (let start = 0; start < asked.length; start += AT_ONCE) {
      const roots = asked.slice(start, start + AT_ONCE).map((uuid) => ["root", uuid]);
      const { uuids, names } = await readOwn("fleet", roots, this.signal);
      uuids.forEach((uuid, place) => this.names.set(uuid, names[place] ?? uuid));
    }
  }

  #draw() {
    const shown = this.changes.filter(({ kinds }) => !this.wanted || kinds.includes(this.wanted)).reverse();
    const rows = shown.map((change) => element("tr", {},
      element("td", {}, element("time", { datetime: change.at }, clock(change.at))),
      element("th", { scope: "row" }, this.#host(change.root_provider_uuid)),
      element("td", {}, change.kinds.map((kind) => MEANINGS[kind] ?? kind).join("; "))));
    renew(this.element, () => this.element.replaceChildren(rows.length
      ? scrolling("Changes, the newest first", ["Time", "Host", "Of what"], rows)
      : element("p", { class: "faint" }, "Nothing in the last ten minutes.")));
  }

  #host(uuid) {
    if (uuid === null) return "the whole fleet";
    return this.names.has(uuid) ? pageLink("host", this.names.get(uuid), uuid) : `${uuid}, which is gone`;
  }
}

function clock(at) {
  return new Date(at).toLocaleTimeString("en-GB");
}
