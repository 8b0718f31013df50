// The hosts of the fleet, kept equal to the server.

import { read, readOwn } from "../api.js";
import { nowAndThen } from "../following.js";
import { MISSING, UNHEALTHY } from "../host/tree.js";

/** So many hosts are asked for in one request, whose line is bounded. */
const AT_ONCE = 50;
/** From so many hosts on the whole fleet is read instead. */
const FEW = 300;
const DISABLED = "COMPUTE_STATUS_DISABLED";
/** What traits say of the devices of a host. */
const DEVICES = { [MISSING]: "a device is gone, but held", [UNHEALTHY]: "a device is broken" };

/**
 * A host is the root of a provider tree: {uuid, name, providers, traits, aggregates, classes, isDisabled},
 * where `classes` has {capacity, used} by resource class. `reports` has by the uuid of a host what its
 * agent reported last, where there is something to know: it is silent, in trouble or has a reason.
 */
export class Fleet {
  constructor() {
    this.hosts = new Map();
    this.reports = new Map();
  }

  async load(signal) {
    const [hosts, reports] = await Promise.all([readOwn("fleet", [], signal), notableReports([["notable", "true"]], signal)]);
    this.hosts = new Map(hostsOf(hosts));
    this.reports = reports;
  }

  /** Read again what agents reported, now and then, and call `onReports`. */
  followReports(onReports, signal) {
    return nowAndThen(async () => {
      this.reports = await notableReports([["notable", "true"]], signal);
      onReports();
    }, signal);
  }

  isSilent(host) {
    return this.reports.get(host.uuid)?.silent ?? false;
  }

  /** Return what is to be known of a host in words: that it is disabled, its agent silent, a device gone; empty for most. */
  stateOf(host) {
    const report = this.reports.get(host.uuid);
    const devices = Object.entries(DEVICES).filter(([trait]) => host.traits.has(trait)).map(([, words]) => words);
    return [...statesOf(host.isDisabled, report), ...devices].join("; ");
  }

  /** Read the hosts that changed. */
  async refresh(changes, signal) {
    const roots = [...new Set(changes.map((change) => change.root_provider_uuid))].filter(Boolean);
    if (roots.length > FEW) return this.load(signal);
    for (let start = 0; start < roots.length; start += AT_ONCE) {
      const asked = roots.slice(start, start + AT_ONCE);
      const now = new Map(hostsOf(await readOwn("fleet", asked.map((uuid) => ["root", uuid]), signal)));
      for (const uuid of asked) {
        if (now.has(uuid)) this.hosts.set(uuid, now.get(uuid));
        else this.hosts.delete(uuid);
      }
    }
  }

  /** Return the names that hosts have in one of their sets, in order. */
  names(kind) {
    const names = new Set();
    for (const host of this.hosts.values()) {
      for (const name of kind === "classes" ? Object.keys(host.classes) : host[kind]) names.add(name);
    }
    return [...names].sort();
  }
}

/** Return the last reports of agents by the uuid of their hosts. Whoever may not read them sees the fleet without. */
export async function notableReports(parameters, signal) {
  try {
    const answer = await read("agent_reports", parameters, signal);
    return new Map((answer?.agent_reports ?? []).map((report) => [report.root_provider_uuid, report]));
  } catch (error) {
    if (error.status === 403) return new Map();
    throw error;
  }
}

/** Return sentences on whether a host takes instances and its agent works. */
export function statesOf(isDisabled, report) {
  const states = [];
  if (isDisabled) states.push(report?.disabled_reason ? `disabled: ${report.disabled_reason}` : "disabled");
  if (report?.silent) states.push(`agent silent since ${moment(report.at)}`);
  else if (["refused", "unreachable"].includes(report?.bus.state)) states.push(`message bus ${report.bus.state}`);
  if (report?.trouble) states.push(report.trouble);
  return states;
}

export function moment(at) {
  const time = new Date(at);
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? time.toLocaleTimeString("en-GB") : time.toLocaleString("en-GB");
}

function hostsOf(body) {
  const traits = body.trait_sets.map((names) => new Set(names));
  const aggregates = body.aggregate_sets.map((uuids) => new Set(uuids));
  const hosts = body.uuids.map((uuid, place) => ({
    uuid,
    name: body.names[place] ?? uuid,
    providers: body.providers[place],
    traits: traits[body.traits[place]],
    aggregates: aggregates[body.aggregates[place]],
    classes: {},
    isDisabled: traits[body.traits[place]].has(DISABLED),
  }));
  for (const [name, use] of Object.entries(body.classes)) {
    use.capacity.forEach((capacity, entry) => {
      const host = hosts[use.host === null ? entry : use.host[entry]];
      host.classes[name] = { capacity, used: use.used[entry] };
    });
  }
  return hosts.map((host) => [host.uuid, host]);
}

/** Return the share of a class that is used, from 0 to 1; null where a host does not have it. */
export function share(host, resourceClass) {
  const use = host.classes[resourceClass];
  if (!use) return null;
  return use.capacity > 0 ? use.used / use.capacity : 1;
}

const ORDERS = {
  name: () => 0,
  use: (a, b, name) => (share(b, name) ?? -1) - (share(a, name) ?? -1),
  free: (a, b, name) => free(b, name) - free(a, name),
  capacity: (a, b, name) => (b.classes[name]?.capacity ?? -1) - (a.classes[name]?.capacity ?? -1),
};

export function free(host, resourceClass) {
  const use = host.classes[resourceClass];
  return use ? Math.max(0, use.capacity - use.used) : -1;
}

const STATES = {
  enabled: (fleet, host) => !host.isDisabled,
  disabled: (fleet, host) => host.isDisabled,
  silent: (fleet, host) => fleet.isSilent(host),
  troubled: (fleet, host) => fleet.stateOf(host) !== "",
};

const collator = new Intl.Collator("en", { numeric: true });

/** Return the hosts that pass the filters, in the order asked for. */
export function selected(fleet, { resourceClass, text, trait, aggregate, order, state = "" }) {
  const sought = text.toLowerCase();
  const compare = ORDERS[order] ?? ORDERS.name;
  return [...fleet.hosts.values()]
    .filter((host) => (!resourceClass || host.classes[resourceClass])
      && (!trait || host.traits.has(trait))
      && (!aggregate || host.aggregates.has(aggregate))
      && (!state || STATES[state](fleet, host))
      && (!sought || host.name.toLowerCase().includes(sought) || host.uuid.startsWith(sought)))
    .sort((a, b) => compare(a, b, resourceClass) || collator.compare(a.name, b.name));
}
