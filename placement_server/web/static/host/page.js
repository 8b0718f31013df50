// The page of a host: its drawing, who holds something of it, and its providers.

import { read } from "../api.js";
import { count, element, entitle, number, pageAddress, pageLink, renew, titleCells, usedOf } from "../dom.js";
import { past, pastTable } from "../changes/past.js";
import { moment, notableReports, statesOf } from "../fleet/hosts.js";
import { follow, nowAndThen } from "../following.js";
import { drawing, emphasise, legend, preorder, treeOf } from "./drawing.js";

const MOST_CONSUMERS = 500;
const MOST_CHANGES = 10;

export async function show(page, { path: [uuid], signal }) {
  entitle("Host");
  const title = element("h1", {}, "Host");
  const content = element("div", { class: "content" }, element("p", {}, "Reading the host …"));
  page.append(title, content);
  const ofHost = ["root", uuid];
  nowAndThen(refresh, signal);
  await follow({
    signal,
    parameters: [ofHost],
    onStart: refresh,
    onChanges: refresh,
  });

  async function refresh() {
    const body = await tree(uuid, signal);
    if (body === null) {
      content.replaceChildren(element("p", { class: "failure" }, `There is no provider ${uuid}, or not any longer.`));
      return;
    }
    // The address may name any provider of the tree.
    ofHost[1] = body.root_provider_uuid;
    const [first] = body.providers;
    const [reports, changes] = await Promise.all([
      notableReports([["root", first.uuid]], signal),
      past({ host: first.uuid }, MOST_CHANGES, signal).catch((error) => {
        // Whoever may not read who changed what sees the host without.
        if (error.status === 403) return null;
        throw error;
      }),
    ]);
    const report = reports.get(first.uuid);
    title.textContent = first.name;
    entitle(first.name);
    const isOpen = content.querySelector("details")?.open ?? false;
    renew(content, () => content.replaceChildren(...parts(body, report, changes, isOpen)));
  }
}

export function tree(uuid, signal) {
  return read(`provider_trees/${encodeURIComponent(uuid)}`, [["include", "usages,allocations"]], signal);
}

function parts(body, report, changes, isOpen) {
  const root = treeOf(body);
  const all = preorder(root);
  const consumers = Object.entries(body.allocations);
  const drawn = drawing(body, null, report?.cells);
  const broken = all.filter((provider) => provider.isBroken).map((provider) => provider.label);
  const gone = all.filter((provider) => provider.isGone).map((provider) => provider.label);
  const states = [
    ...statesOf(root.traits.includes("COMPUTE_STATUS_DISABLED"), report),
    ...(broken.length ? [`broken: ${broken.join(", ")}`] : []),
    ...(gone.length ? [`gone, but held: ${gone.join(", ")}`] : []),
  ];
  return [
    element("p", { class: "summary" }, `${count(all.length, "provider")}, ${count(consumers.length, "consumer")}`,
      states.length ? element("strong", { class: "failure" }, ` · ${states.join(" · ")}`) : null),
    element("dl", { class: "facts" },
      fact("Provider", element("code", {}, root.uuid)),
      report ? fact("Agent", `${report.silent ? "silent, last" : "last"} heard at ${moment(report.at)}, at ${report.place.address}, message bus ${report.bus.state}`) : null,
      root.aggregates.length ? fact("Aggregates", ...root.aggregates.map((uuid) => pageLinkTo(uuid))) : null),
    element("h2", { class: "unseen" }, "Drawing"),
    legend(),
    drawn,
    element("h2", {}, "Consumers"),
    consumerTable(consumers, all, drawn),
    changes ? element("h2", {}, "What changed") : null,
    changes ? pastTable(changes, true) : null,
    changes?.history.length === MOST_CHANGES
      ? element("p", {}, element("a", { href: pageAddress("changes", [], { host: root.uuid }) }, "All that changed of this host")) : null,
    element("details", isOpen ? { open: true } : {}, element("summary", {}, "All providers, with their traits"), providerTable(all)),
  ];
}

function fact(name, ...content) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, content));
}

function pageLinkTo(aggregate) {
  return element("a", { href: `#/fleet?${new URLSearchParams({ aggregate })}` }, element("code", {}, aggregate));
}

function consumerTable(consumers, all, drawn) {
  if (!consumers.length) return element("p", { class: "faint" }, "Nobody holds anything of this host.");
  const labels = new Map(all.map((provider) => [provider.uuid, provider.label]));
  const shown = consumers.slice(0, MOST_CONSUMERS);
  const rows = shown.map(([consumer, record]) => element("tr",
    {
      mouseenter: () => emphasise(drawn, consumer),
      mouseleave: () => emphasise(drawn, null),
      focusin: () => emphasise(drawn, consumer),
      focusout: () => emphasise(drawn, null),
    },
    element("th", { scope: "row" }, pageLink("consumer", consumer, consumer)),
    element("td", {}, record.consumer_type),
    element("td", {}, record.project_id),
    element("td", {}, holdings(record.allocations, labels))));
  const unshown = consumers.length - shown.length;
  return element("div", {},
    scrolling("Consumers", ["Consumer", "Type", "Project", "Holds"], rows),
    unshown ? element("p", { class: "faint" }, `and ${count(unshown, "more consumer")}`) : null);
}

/** Return a list of what a consumer holds, a line for each provider. */
export function holdings(allocations, labels) {
  return Object.entries(allocations).map(([uuid, { resources }]) => element("div", {},
    Object.entries(resources).map(([name, amount]) => `${name} ${number(amount)}`).join(", "),
    element("span", { class: "faint" }, ` from ${labels.get(uuid) ?? uuid}`)));
}

function providerTable(all) {
  const rows = all.map((provider) => element("tr", {},
    element("th", { scope: "row" }, provider.name),
    element("td", {}, provider.amounts.map((amount) => element("div", {},
      `${amount.name}: ${usedOf(amount.name, amount.used, amount.capacity)}, ratio ${amount.ratio}, ${number(amount.reserved)} of ${number(amount.total)} reserved`))),
    element("td", { class: "traits" }, provider.traits.join(" "))));
  return scrolling("Providers", ["Provider", "In use", "Traits"], rows);
}

export function scrolling(label, titles, rows) {
  titleCells(titles, rows);
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    element("table", {},
      element("thead", {}, element("tr", {}, titles.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, rows)));
}
