// The tree of a host, as the drawing wants it: what is a NUMA cell, what are pages, cards and devices.

const PAGE_SIZE = "CUSTOM_MEMORY_PAGE_SIZE_";
const GPU_MODEL = "CUSTOM_GPU_";
const SHARING = "MISC_SHARES_VIA_AGGREGATE";
export const UNHEALTHY = "CUSTOM_GPU_UNHEALTHY";
export const MISSING = "CUSTOM_DEVICE_MISSING";
/** Traits that say what a provider is, by the kind that the drawing knows. */
const KINDS = {
  cell: ["HW_NUMA_ROOT"],
  card: ["HW_NIC_ROOT", "CUSTOM_NIC_ROOT"],
  port: ["HW_PCI_ROOT", "CUSTOM_PCIE_ROOT"],
};

/**
 * Return the root of a tree as the API shows it, with usages and allocations.
 *
 * A provider is {uuid, name, label, model, kind, isBroken, isGone, pageSize, traits, aggregates, amounts, children}.
 * An amount is {name, total, reserved, ratio, capacity, used, held}, where `held` has {consumer, amount}.
 */
export function treeOf(body) {
  const held = holdings(body.allocations);
  const [first] = body.providers;
  const providers = new Map(body.providers.map((entry) => [entry.uuid, provider(entry, first.name, held)]));
  for (const entry of body.providers) {
    providers.get(entry.parent_provider_uuid)?.children.push(providers.get(entry.uuid));
  }
  return providers.get(first.uuid);
}

function provider(entry, rootName, held) {
  const traits = new Set(entry.traits);
  const pages = entry.traits.find((trait) => trait.startsWith(PAGE_SIZE));
  const kind = pages ? "pages" : Object.keys(KINDS).find((name) => KINDS[name].some((trait) => traits.has(trait)));
  return {
    uuid: entry.uuid,
    name: entry.name,
    label: label(entry, kind, rootName),
    model: model(entry.traits),
    kind: kind ?? "device",
    isBroken: traits.has(UNHEALTHY),
    isGone: traits.has(MISSING),
    pageSize: pages ? Number(pages.slice(PAGE_SIZE.length)) : null,
    traits: entry.traits,
    aggregates: entry.aggregates,
    amounts: Object.entries(entry.inventories).sort(byClass).map(([name, inventory]) => ({
      name,
      total: inventory.total,
      reserved: inventory.reserved,
      ratio: inventory.allocation_ratio,
      capacity: Math.max(0, Math.floor((inventory.total - inventory.reserved) * inventory.allocation_ratio)),
      used: entry.usages[name] ?? 0,
      held: held.get(`${entry.uuid} ${name}`) ?? [],
    })),
    children: [],
  };
}

/** Return a short name: without that of the host, and with what the device is. */
function label(entry, kind, rootName) {
  const short = entry.name.startsWith(rootName) ? entry.name.slice(rootName.length).replace(/^[_\s]+/, "") : entry.name;
  if (!short) return entry.traits.includes(SHARING) ? "Shared with hosts of its aggregates" : "Whole host";
  const address = short.match(/([0-9a-f]{4,})[:_]([0-9a-f]{2})[:_]([0-9a-f]{2})[._]([0-7])$/i)?.slice(1);
  if (!address) return short.replaceAll("_", " ");
  const [domain, bus, slot, unit] = address;
  return `${device(entry, kind)} ${domain}:${bus}:${slot}.${unit}`;
}

function device(entry, kind) {
  const classes = Object.keys(entry.inventories);
  if (kind === "card") return "Network card";
  if (kind === "port") return "PCIe root port";
  if (classes.some((name) => name.endsWith("GPU")) || model(entry.traits)) return "GPU";
  return classes.some((name) => name.endsWith("NET_VF")) ? "Port" : "Device";
}

function model(traits) {
  const trait = traits.find((name) => name.startsWith(GPU_MODEL) && name !== UNHEALTHY);
  return trait ? trait.slice(GPU_MODEL.length).replaceAll("_", " ") : "";
}

/** CPUs come first, as people think of a host. */
function byClass([a], [b]) {
  return b.endsWith("CPU") - a.endsWith("CPU") || a.localeCompare(b);
}

function holdings(allocations) {
  const held = new Map();
  for (const consumer of Object.keys(allocations).sort()) {
    for (const [uuid, { resources }] of Object.entries(allocations[consumer].allocations)) {
      for (const [name, amount] of Object.entries(resources)) {
        const key = `${uuid} ${name}`;
        if (!held.has(key)) held.set(key, []);
        held.get(key).push({ consumer, amount });
      }
    }
  }
  return held;
}

/** Return a provider and all below it, in preorder. */
export function preorder(root) {
  return [root, ...root.children.flatMap(preorder)];
}

/** Return the providers below one that are drawn inside of it and not as a cell of their own. */
export function devices(root) {
  return root.children.filter((child) => child.kind !== "cell" && child.kind !== "pages");
}

/** Return the size of a page in the unit that people use. */
export function pageSize(kibibytes) {
  return kibibytes >= 1048576 ? `${kibibytes / 1048576} GiB` : kibibytes >= 1024 ? `${kibibytes / 1024} MiB` : `${kibibytes} KiB`;
}
