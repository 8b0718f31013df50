// The page that finds a place: a request, and the hosts that it fits on, or what would make it fit.

import { ApiError, read } from "../api.js";
import { announcer, count, element, entitle, pageAddress, renew } from "../dom.js";
import { Fleet, selected } from "../fleet/hosts.js";
import { HostMap, legend } from "../fleet/map.js";
import { preorder, treeOf } from "../host/tree.js";
import { tree } from "../host/page.js";
import { follow } from "../following.js";
import { hideTip, showTip } from "../tip.js";
import { places, reasons } from "./answer.js";
import { QueryForm } from "./form.js";
import { Moves } from "./moves.js";
import { classesOf, queryIn, withoutDisabled } from "./query.js";

const FIRST = 5;
/** An answer takes a search, so changes gather for longer. */
const GATHER_MILLISECONDS = 1000;

export async function show(page, { query, signal }) {
  entitle("Find a place");
  const fleet = new Fleet();
  const said = announcer();
  const first = element("div");
  const rest = element("div");
  const map = new HostMap({
    height: 0.3,
    onPoint: (event, host) => (host ? showTip(event, [host.name, fleet.stateOf(host)].filter(Boolean).join(": ")) : hideTip()),
    onPick: (host) => { location.hash = pageAddress("host", [host.uuid]); },
  });
  const marks = element("section", { "aria-label": "Map of the fleet", hidden: true }, legend(true), map.element);
  let arrows = [];
  const guests = new Moves((moves, text) => {
    arrows = moves.map(({ from, to }) => [from.root, to.root]);
    draw(current, new Set(arrows.flat()));
    said.textContent = text;
  });
  const answer = element("div", { class: "answer" }, said, first, guests.element, marks, rest);
  const form = new QueryForm(find);
  const disabledToo = element("input", { type: "checkbox", change: () => find(current) });
  disabledToo.checked = query.get("disabled") === "yes";
  page.append(element("h1", {}, "Find a place"),
    element("div", { class: "search-columns" },
      element("div", {}, form.element, element("label", { class: "switch" }, disabledToo, " Disabled hosts, too")),
      answer));
  map.watch(signal);
  let current = queryIn(query.get("q") ?? "");
  let running = new AbortController();
  /** Whether the next answer is to be said: a change of the fleet may begin the search again before it has come. */
  let isAsked = false;
  /** Whether the API refused the query as it is: only a new name, of a class or a trait, can mend that. */
  let isRefused = false;
  form.show(current);

  /** Find a place for what somebody asks, and say aloud what was found. */
  async function find(asked) {
    history.replaceState(null, "", pageAddress("search", [], { q: asked, disabled: disabledToo.checked ? "yes" : "" }));
    isAsked = true;
    await run(asked);
  }

  function attempt(asked, isDisabledToo) {
    if (isDisabledToo) disabledToo.checked = true;
    form.show(asked);
    return find(asked);
  }

  async function run(asked) {
    current = asked;
    isRefused = false;
    running.abort();
    running = new AbortController();
    const own = AbortSignal.any([running.signal, signal]);
    if (!asked) return;
    const query = disabledToo.checked ? asked : withoutDisabled(asked);
    try {
      const capacity = await read("capacity", query, own);
      if (!capacity.trees.length) {
        const explanation = await read("candidate_explanation", query, own);
        put(reasons(explanation, asked, (uuid) => fleet.hosts.get(uuid)?.name ?? uuid, attempt));
        if (guests.query !== query) offer(query);
      } else {
        offer(null);
        const found = await read("allocation_candidates", limited(query), own);
        put(places(capacity, await candidatesOf(found, own)));
      }
      draw(asked, new Set(arrows.length ? arrows.flat() : capacity.trees.map((tree) => tree.root)));
    } catch (error) {
      if (own.aborted) return;
      isRefused = error instanceof ApiError && error.status === 400;
      put({ first: [element("p", { class: "failure", role: "alert" }, error.message)], rest: [] });
      marks.hidden = true;
      offer(null);
    }
  }

  function offer(query) {
    arrows = [];
    guests.offer(query);
  }

  function put(parts) {
    const isOpen = answer.querySelector("details")?.open;
    renew(answer, () => {
      first.replaceChildren(...parts.first);
      rest.replaceChildren(...parts.rest);
      if (isOpen) answer.querySelector("details")?.setAttribute("open", "");
    });
    if (isAsked) said.textContent = first.firstElementChild.textContent;
    isAsked = false;
  }

  function draw(asked, roots) {
    marks.hidden = false;
    const [resourceClass] = classesOf(asked);
    const hosts = selected(fleet, { resourceClass: "", text: "", trait: "", aggregate: "", order: "name" });
    map.draw(fleet, hosts, resourceClass, `Map of the fleet: ${arrows.length ? `${count(arrows.length, "move")} between ${roots.size}` : roots.size} of ${hosts.length} hosts${arrows.length ? "" : " fit"}. The tables have them.`, roots, arrows);
  }

  await follow({
    signal,
    gather: GATHER_MILLISECONDS,
    onStart: async () => { await fleet.load(signal); await run(current); },
    onChanges: async (changes) => {
      await fleet.refresh(changes, signal);
      if (!isRefused || changes.some(({ kinds }) => kinds.includes("names"))) await run(current);
    },
  });
}

function limited(query) {
  return [...new URLSearchParams(query)].filter(([name]) => name !== "limit").concat([["limit", FIRST]]);
}

/** Return the candidates with the hosts that they are on, and what they take from which provider. */
async function candidatesOf({ allocation_requests: requests, provider_summaries: summaries }, signal) {
  const roots = new Set(Object.values(summaries).map((provider) => provider.root_provider_uuid));
  const trees = await Promise.all([...roots].map((uuid) => tree(uuid, signal)));
  const providers = new Map(trees.filter(Boolean).flatMap((body) => preorder(treeOf(body))).map((provider) => [provider.uuid, provider]));
  const isSharing = (uuid) => summaries[uuid].traits.includes("MISC_SHARES_VIA_AGGREGATE");
  return requests.map(({ allocations }) => {
    const uuids = Object.keys(allocations);
    const { root_provider_uuid: root } = summaries[uuids.find((uuid) => !isSharing(uuid)) ?? uuids[0]];
    return {
      root,
      name: providers.get(root)?.name ?? root,
      takes: uuids.map((uuid) => {
        const amounts = Object.entries(allocations[uuid].resources).map(([name, amount]) => `${name} ${amount}`).join(", ");
        return `${amounts} from ${providers.get(uuid)?.label ?? uuid}`;
      }),
    };
  });
}
