// The hosts of the fleet, kept equal to the server.

import { readOwn } from "../api.js";

/** So many hosts are asked for in one request, whose line is bounded. */
const AT_ONCE = 50;
/** From so many hosts on the whole fleet is read instead. */
const FEW = 300;

/**
 * A host is the root of a provider tree: {uuid, name, providers, traits, aggregates, classes}, where
 * `classes` has {capacity, used} by resource class.
 */
export class Fleet {
  constructor() {
    this.hosts = new Map();
  }

  async load(signal) {
    this.hosts = new Map(hostsOf(await readOwn("fleet", [], signal)));
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

const collator = new Intl.Collator("en", { numeric: true });

/** Return the hosts that pass the filters, in the order asked for. */
export function selected(fleet, { resourceClass, text, trait, aggregate, order }) {
  const sought = text.toLowerCase();
  const compare = ORDERS[order] ?? ORDERS.name;
  return [...fleet.hosts.values()]
    .filter((host) => (!resourceClass || host.classes[resourceClass])
      && (!trait || host.traits.has(trait))
      && (!aggregate || host.aggregates.has(aggregate))
      && (!sought || host.name.toLowerCase().includes(sought) || host.uuid.startsWith(sought)))
    .sort((a, b) => compare(a, b, resourceClass) || collator.compare(a.name, b.name));
}
