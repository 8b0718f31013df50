// The page of the fleet: every host as a cell, and beside it as a row.

import { announcer, count, element, entitle, field, number, pageAddress, percent, usedOf } from "../dom.js";
import { follow } from "../following.js";
import { hideTip, showTip } from "../tip.js";
import { Fleet, selected, share } from "./hosts.js";
import { UseHistory } from "./history.js";
import { HostMap, legend } from "./map.js";
import { HostTable } from "./table.js";

const STATES = [["", "any"], ["enabled", "enabled"], ["disabled", "disabled"], ["silent", "agent silent"], ["troubled", "anything to know"]];
const ORDERS = [["name", "Name"], ["use", "Most in use"], ["free", "Most free"], ["capacity", "Largest"]];

export async function show(page, { query, signal }) {
  entitle("Fleet");
  const filters = new Filters(query, () => {
    table.rewind();
    draw();
    // Only what somebody asked for is said aloud, not every change of the fleet.
    said.textContent = summary.textContent;
  });
  const said = announcer();
  const summary = element("p", { class: "summary" }, "Reading the fleet …");
  const map = new HostMap({
    onPoint: (event, host) => (host ? showTip(event, ...described(fleet, host, filters.values.resourceClass)) : hideTip()),
    onPick: (host) => { location.hash = pageAddress("host", [host.uuid]); },
  });
  const table = new HostTable();
  const history = new UseHistory(signal);
  page.append(element("h1", {}, "Fleet"), filters.element, summary, said, legend(), map.element, history.element, table.element);
  map.watch(signal);

  const fleet = new Fleet();
  const draw = () => {
    const values = filters.values;
    const hosts = selected(fleet, values);
    const text = summarised(fleet, hosts, values.resourceClass);
    summary.textContent = text;
    map.draw(fleet, hosts, values.resourceClass, `Map of ${text} The table below has the same hosts.`);
    table.draw(fleet, hosts, values.resourceClass);
    history.draw(values.resourceClass);
  };
  const redraw = () => {
    filters.offer(fleet);
    draw();
  };
  fleet.followReports(draw, signal);
  await follow({
    signal,
    onStart: async () => { await fleet.load(signal); redraw(); },
    onChanges: async (changes) => { await fleet.refresh(changes, signal); redraw(); },
  });
}

function summarised(fleet, hosts, name) {
  const all = fleet.hosts.size;
  if (!all) return "There is no host yet. Each appears when its agent has reported it.";
  let [capacity, used, full] = [0, 0, 0];
  for (const host of hosts) {
    capacity += host.classes[name]?.capacity ?? 0;
    used += host.classes[name]?.used ?? 0;
    if (share(host, name) >= 1) full += 1;
  }
  const shown = hosts.length === all ? count(all, "host") : `${number(hosts.length)} of ${count(all, "host")}`;
  const disabled = hosts.filter((host) => host.isDisabled).length;
  const silent = hosts.filter((host) => fleet.isSilent(host)).length;
  const states = [
    disabled ? `, ${number(disabled)} disabled` : "",
    silent ? `, ${number(silent)} with a silent agent` : "",
  ].join("");
  if (!name || !hosts.length) return `${shown}${states}.`;
  const share_ = capacity ? percent(used / capacity) : "0 %";
  return `${shown}: ${usedOf(name, used, capacity)} ${name} in use (${share_}), ${number(full)} full${states}.`;
}

function described(fleet, host, name) {
  const use = host.classes[name];
  const state = fleet.stateOf(host);
  return [
    element("strong", {}, host.name),
    element("div", {}, use ? `${usedOf(name, use.used, use.capacity)} ${name} in use` : `has no ${name}`),
    element("div", { class: "faint" }, count(host.providers, "provider")),
    state ? element("div", { class: "failure" }, state) : "",
  ];
}

/** What is shown, and in which order; kept in the address, so that a link shows the same. */
class Filters {
  constructor(query, onChange) {
    this.wanted = query;
    this.onChange = onChange;
    const changed = () => this.#changed();
    this.resourceClass = element("select", { change: changed });
    this.text = element("input", { type: "search", value: query.get("text") ?? "", input: changed, autocomplete: "off" });
    this.trait = element("select", { change: changed });
    this.aggregate = element("select", { change: changed });
    this.state = element("select", { change: changed }, STATES.map(([value, text]) => element("option", { value }, text)));
    this.state.value = STATES.some(([value]) => value === query.get("state")) ? query.get("state") : "";
    this.order = element("select", { change: changed }, ORDERS.map(([value, text]) => element("option", { value }, text)));
    this.order.value = ORDERS.some(([value]) => value === query.get("order")) ? query.get("order") : "name";
    this.element = element("form", { class: "filters", submit: (event) => event.preventDefault(), "aria-label": "Filters" },
      field("Resource class", this.resourceClass), field("Name or uuid", this.text), field("Trait", this.trait),
      field("Aggregate", this.aggregate), field("State", this.state), field("Order", this.order));
  }

  get values() {
    return {
      resourceClass: this.resourceClass.value,
      text: this.text.value.trim(),
      trait: this.trait.value,
      aggregate: this.aggregate.value,
      state: this.state.value,
      order: this.order.value,
    };
  }

  /** Offer the names that the fleet has, and keep what is chosen. */
  offer(fleet) {
    const classes = fleet.names("classes");
    const chosen = this.resourceClass.value || this.wanted.get("class");
    const preferred = ["VCPU", "PCPU"].find((name) => classes.includes(name)) ?? classes[0] ?? "";
    fill(this.resourceClass, classes.map((name) => [name, name]), classes.includes(chosen) ? chosen : preferred);
    for (const [select, kind, name] of [[this.trait, "traits", "trait"], [this.aggregate, "aggregates", "aggregate"]]) {
      const names = fleet.names(kind).map((value) => [value, value]);
      fill(select, [["", "any"], ...names], select.options.length ? select.value : this.wanted.get(name) ?? "");
    }
  }

  #changed() {
    const { resourceClass, ...rest } = this.values;
    history.replaceState(null, "", pageAddress("fleet", [], { class: resourceClass, ...rest, order: rest.order === "name" ? "" : rest.order }));
    this.onChange();
  }
}

function fill(select, options, value) {
  const isSame = select.options.length === options.length
    && options.every(([option], place) => select.options[place].value === option);
  if (!isSame) select.replaceChildren(...options.map(([option, text]) => element("option", { value: option }, text)));
  select.value = value;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}
