// The page of a consumer: where it sits, drawn in its hosts, and what it holds.

import { read } from "../api.js";
import { count, element, entitle, number, pageLink, renew } from "../dom.js";
import { follow } from "../following.js";
import { drawing, legend, preorder, treeOf } from "../host/drawing.js";
import { scrolling, tree } from "../host/page.js";

export async function show(page, { path: [consumer], signal }) {
  entitle(`Consumer ${consumer}`);
  const content = element("div", { class: "content" }, element("p", {}, "Reading the consumer …"));
  page.append(element("h1", {}, `Consumer ${consumer}`), content);
  let held = new Set();
  await follow({
    signal,
    onStart: refresh,
    // It may have gone to any host, of which nothing says whose it is.
    onChanges: (changes) => (
      changes.some(({ kinds, root_provider_uuid: root }) => kinds.includes("usage") || held.has(root)) ? refresh() : null),
  });

  async function refresh() {
    const record = await read(`allocations/${encodeURIComponent(consumer)}`, [], signal);
    const hosts = await hostsOf(record, signal);
    held = new Set(hosts.map((body) => body.root_provider_uuid));
    renew(content, () => content.replaceChildren(...parts(consumer, record, hosts)));
  }
}

/** Return the trees that a consumer holds something of. */
async function hostsOf(record, signal) {
  const rest = new Set(Object.keys(record?.allocations ?? {}));
  const trees = [];
  while (rest.size) {
    const [uuid] = rest;
    rest.delete(uuid);
    const body = await tree(uuid, signal);
    if (body === null) continue;
    trees.push(body);
    for (const provider of body.providers) rest.delete(provider.uuid);
  }
  return trees;
}

function parts(consumer, record, hosts) {
  if (!Object.keys(record?.allocations ?? {}).length) {
    return [element("p", {}, "It holds nothing, or does not exist.")];
  }
  const names = new Map();
  for (const body of hosts) {
    for (const provider of preorder(treeOf(body))) names.set(provider.uuid, [body, provider]);
  }
  const rows = Object.entries(record.allocations).map(([uuid, { resources }]) => {
    const [body, provider] = names.get(uuid) ?? [];
    const amounts = Object.entries(resources).map(([name, amount]) => `${name} ${number(amount)}`).join(", ");
    return element("tr", {},
      element("th", { scope: "row" }, provider ? provider.name : uuid),
      element("td", {}, body ? pageLink("host", body.providers[0].name, body.root_provider_uuid) : ""),
      element("td", {}, amounts));
  });
  return [
    element("p", { class: "summary" }, `${record.consumer_type} of project ${record.project_id}, user ${record.user_id}; `
      + `holds something of ${count(hosts.length, "host")}.`),
    scrolling("What it holds", ["Provider", "Host", "Holds"], rows),
    legend(),
    ...hosts.flatMap((body) => [
      element("h2", {}, pageLink("host", body.providers[0].name, body.root_provider_uuid)),
      drawing(body, consumer),
    ]),
  ];
}
